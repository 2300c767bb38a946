"""A small MCP server with real effects that can be counted: `python -m workers.samples.dashboards`.

It speaks stdio, or Streamable HTTP on 127.0.0.1 with `--http PORT` (at /mcp). Every change is one line of
JSON in the file named by `DASHBOARDS_FILE` (default `dashboards.jsonl`), fsynced before the tool answers:

    {"op": "create", "id": "..", "title": "..", "panels": [], "mutation_id": "...", "attempt": "...", "at": 1}

`mutation_id` and `attempt` come from the request's `_meta`, null for a caller that sends none; `at` is Unix
time in seconds. Counting the lines with one `mutation_id` counts how often that mutation really happened.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("dashboards", instructions="Create, change and list dashboards.", log_level="WARNING")


def _file() -> Path:
    return Path(os.environ.get("DASHBOARDS_FILE", "dashboards.jsonl"))


def _append(op: str, ctx: Context[Any, Any], **fields: Any) -> None:
    """One durable line; O_APPEND keeps lines of several server processes whole."""
    meta = ctx.request_context.meta or {}
    line = {
        "op": op,
        **fields,
        "mutation_id": meta.get("mutation-ledger/mutation_id"),
        "attempt": meta.get("mutation-ledger/attempt"),
        "at": time.time(),
    }
    with _file().open("ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")
        os.fsync(file.fileno())


def _current() -> dict[str, dict[str, Any]]:
    """Dashboards by id, as all lines so far leave them."""
    dashboards: dict[str, dict[str, Any]] = {}
    if _file().exists():
        for text in _file().read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            dashboard = dashboards.setdefault(line["id"], {"id": line["id"]})
            dashboard.update(line["changes"] if line["op"] == "patch" else _described(line))
    return dashboards


def _described(line: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": line["title"],
        "panels": line["panels"],
        "url": f"https://dashboards.example/d/{line['id']}",
    }


def _create(ctx: Context[Any, Any], title: str, panels: list[str] | None) -> dict[str, Any]:
    created = {"id": uuid.uuid4().hex[:12], "title": title, "panels": panels or []}
    _append("create", ctx, **created)
    return {"id": created["id"], **_described(created)}


@server.tool()
def create(ctx: Context[Any, Any], title: str, panels: list[str] | None = None) -> dict[str, Any]:
    """Create a dashboard. Two calls make two dashboards, also with the same title."""
    return _create(ctx, title, panels)


@server.tool()
def create_slow(ctx: Context[Any, Any], title: str, seconds: float = 0.0, seconds_after: float = 0.0) -> dict[str, Any]:
    """Create a dashboard `seconds` after the call arrived, and answer `seconds_after` later.

    Once called it goes on to its end, also when cancelled or left by its client, as many real systems do.
    """
    time.sleep(seconds)
    created = _create(ctx, title, None)
    time.sleep(seconds_after)
    return created


@server.tool()
def patch(ctx: Context[Any, Any], id: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Set fields of a dashboard."""
    if id not in _current():
        raise ToolError("no such dashboard")
    _append("patch", ctx, id=id, changes=changes)
    return _current()[id]


@server.tool(name="list")
def list_dashboards() -> list[dict[str, Any]]:
    """All dashboards."""
    return list(_current().values())


def main() -> None:
    """Entry of `python -m workers.samples.dashboards`."""
    parser = argparse.ArgumentParser(description="Sample MCP server with countable effects.")
    parser.add_argument("--http", type=int, metavar="PORT", help="serve Streamable HTTP on 127.0.0.1")
    port = parser.parse_args().http
    if port is None:
        server.run()
    else:
        server.run("streamable-http", host="127.0.0.1", port=port)


if __name__ == "__main__":
    main()
