"""What a `tools/call` result proves. Pure: the raw result object in, a `ToolReply` out.

The SDK's own models are stricter than the contract: they refuse a reply over a missing `resultType`, a null
flag or an unknown content type, after the effect. A reply that was received is judged here instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workers.tools.content import bounded
from workers.tools.results import ToolReply, Verdict, unknown


def judge(result: Mapping[str, Any], keep_bytes: int) -> ToolReply:
    """The verdict on a result that arrived under the request's own id (C-56, section 4 of the contract).

    Input required, any other unfinished kind, or a shape that is no tool result: unknown. The error flag:
    failed. Everything else was received without an error flag: completed, whatever its content is worth.
    """
    kind = result.get("resultType", "complete")
    if kind != "complete":
        return unknown("the server asked for more input" if kind == "input_required" else "unknown result type")
    flag = result.get("isError")
    if flag is not None and not isinstance(flag, bool):
        return unknown("malformed result: isError is not a boolean")
    if not _shaped(result):
        return unknown("malformed result: no list of content")
    content, withheld = _content(result, keep_bytes)
    return ToolReply(
        verdict=Verdict.FAILED if flag else Verdict.COMPLETED,
        content=content,
        content_withheld=withheld,
        detail="the server set the error flag" if flag else "",
    )


def _shaped(result: Mapping[str, Any]) -> bool:
    """A list of content objects; it may be absent only beside structured content."""
    if "content" not in result:
        return "structuredContent" in result
    content = result["content"]
    return isinstance(content, list) and all(isinstance(item, dict) for item in content)


def _content(result: Mapping[str, Any], keep_bytes: int) -> tuple[object | None, bool]:
    """`{"content": [...], "structuredContent": ...}` as sent, without protocol fields."""
    return bounded(
        {key: result[key] for key in ("content", "structuredContent") if key in result},
        keep_bytes,
    )
