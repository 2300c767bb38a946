"""One line of a stdio server, read as a JSON-RPC message. Pure; never quotes content."""

from __future__ import annotations

import json
import re
from typing import Any

from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from pydantic import ValidationError

from ledger.long_integers import PLAIN_DIGITS, write_json

ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
LIST_CHANGED = "notifications/tools/list_changed"
# Far beyond the depth at which content is withheld, far below the one at which Python's parser gives up.
_PARSED_DEPTH = 200
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


class BrokenLine(Exception):
    """The line was meant as a message but nobody can say which: the stream cannot be trusted any more."""


def encode(message: JSONRPCMessage) -> bytes:
    """The line for `message`: ASCII, integers and floats exact, ended by a newline.

    Raises ValueError or TypeError for what JSON does not have, before anything is sent.
    """
    fields = message.model_dump(by_alias=True, exclude_unset=True)
    return write_json(fields, ENCODER).encode("ascii") + b"\n"


def decode(line: bytes) -> JSONRPCMessage | None:
    """The message in `line`, or None for what is not for us: stray output and notifications nobody reads.

    Raises BrokenLine for a line that claims to be JSON-RPC and cannot be read.
    """
    fields = _fields(line)
    if fields is None:
        return None
    if "method" in fields:
        return _from_server(fields)
    return _answer(fields)


def _fields(line: bytes) -> dict[str, Any] | None:
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        fields = _loads(line.decode())
    except ValueError:
        if b'"jsonrpc"' in line:
            raise BrokenLine from None
        return None
    return fields if isinstance(fields, dict) and "jsonrpc" in fields else None


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except (RecursionError, ValueError):
        # Content beyond what Python parses becomes NaN, which gets it withheld and changes nothing else.
        return json.loads(_pruned(text), parse_int=_integer)


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= PLAIN_DIGITS else float("nan")


def _pruned(text: str) -> str:
    """`text` with NaN in place of every container deeper than `_PARSED_DEPTH`."""
    kept: list[str] = []
    depth = start = 0
    for token in _TOKENS.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth == _PARSED_DEPTH + 1:
                kept.append(text[start : token.start()])
        elif token[0] in "]}":
            if depth == _PARSED_DEPTH + 1:
                kept.append("NaN")
                start = token.end()
            depth -= 1
    kept.append(text[start:])
    return "".join(kept)


def _from_server(fields: dict[str, Any]) -> JSONRPCMessage | None:
    try:
        if "id" in fields:
            return JSONRPCRequest.model_validate(fields)
        # A flood of progress and log messages must not cost a task each.
        return JSONRPCNotification.model_validate(fields) if fields["method"] == LIST_CHANGED else None
    except ValidationError:
        return None


def _answer(fields: dict[str, Any]) -> JSONRPCMessage:
    """A response or error; one of the wrong shape becomes an error under its id, if it has one."""
    try:
        if "error" in fields:
            return JSONRPCError.model_validate(fields)
        return JSONRPCResponse.model_validate(fields)
    except ValidationError:
        malformed = ErrorData(code=INTERNAL_ERROR, message="malformed response")
        try:
            return JSONRPCError(jsonrpc="2.0", id=fields.get("id"), error=malformed)
        except ValidationError:
            raise BrokenLine from None
