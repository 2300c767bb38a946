"""Who is who: the digests that name mutations, deliveries and sessions, and the names callers may use.

Every digest is SHA-256 over `strict_json.canonical`, so one value has one digest in every process and
release.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any

from ledger.errors import ConfigError, InvalidRequest
from ledger.strict_json import canonical, check_arguments

MAX_ID_CHARACTERS = 128
MAX_TOOL_CHARACTERS = 200
CONTENT_FIELDS = ("calls", "handler", "text", "input", "on_error", "logical_turn_id")

_SESSION_ID = re.compile(rf"[A-Za-z0-9._:@/-]{{1,{MAX_ID_CHARACTERS}}}")
_TOOL_NAME = re.compile(rf"[A-Za-z0-9_.:/@-]{{1,{MAX_TOOL_CHARACTERS}}}")


def mutation_identity(tool: str, arguments: Mapping[str, Any]) -> str:
    """64 hex characters that name the call `tool(arguments)`; `tool` is the canonical name (C-01, C-03)."""
    return _sha256(canonical([tool, arguments]))


def mutation_identity_of(tool: str, arguments_json: str) -> str:
    """`mutation_identity` for arguments already in canonical text, as `check_arguments` returns it (C-01)."""
    return _sha256(f"[{canonical(tool)},{arguments_json}]")


def delivery_identity(tenant: str, session_id: str, agent: str, user: str, delivery_id: str) -> str:
    """64 hex characters; a `delivery_id` of another session, agent or user is another delivery (C-60)."""
    return _sha256(canonical([tenant, session_id, agent, user, delivery_id]))


def session_hash(tenant: str, session_id: str) -> str:
    """32 hex characters (16 bytes) that stand for the session in keys."""
    return _sha256(canonical([tenant, session_id]))[:32]


def content_digest(value: Mapping[str, Any]) -> str:
    """64 hex characters over what a delivery asks for: its `CONTENT_FIELDS`, absent ones as null (C-60).

    Other fields of a request (deadline, wait, reply form) are not content and change nothing.
    """
    return _sha256(canonical([value.get(field) for field in CONTENT_FIELDS]))


def canonical_tool(name: str, aliases: Mapping[str, str]) -> str:
    """The name that goes into the identity: `name` with aliases resolved, also aliases of aliases (C-03).

    Raises ConfigError when aliases lead back to themselves.
    """
    resolved = name
    for _ in range(len(aliases) + 1):
        target = aliases.get(resolved)
        if target is None or target == resolved:
            return resolved
        resolved = target
    raise ConfigError("tool aliases lead in a circle: let each alias name a canonical tool")


def same_arguments(approved_canonical: str, prepared: object) -> bool:
    """Whether `prepared` is exactly what was approved, in canonical form and constant time (C-04).

    Never raises: arguments that would be refused are not the approved ones.
    """
    try:
        text = check_arguments(prepared, max_bytes=len(approved_canonical))
    except InvalidRequest:
        return False
    return hmac.compare_digest(approved_canonical.encode("utf-8", "surrogatepass"), text.encode("ascii"))


def check_session_id(value: object) -> str:
    """Return `value` if it is 1-128 of `[A-Za-z0-9._:@/-]`, else raise InvalidRequest (C-64)."""
    if isinstance(value, str) and _SESSION_ID.fullmatch(value):
        return value
    raise InvalidRequest(f"session_id must be 1-{MAX_ID_CHARACTERS} of A-Z a-z 0-9 . _ : @ / -")


def check_tool_name(value: object) -> str:
    """Return `value` if it is 1-200 of `[A-Za-z0-9_.:/@-]`, else raise InvalidRequest (C-64)."""
    if isinstance(value, str) and _TOOL_NAME.fullmatch(value):
        return value
    raise InvalidRequest(f"a tool name must be 1-{MAX_TOOL_CHARACTERS} of A-Z a-z 0-9 _ . : / @ -")


def check_delivery_id(value: object) -> str:
    """Return `value` if it is a string of 1-128 characters, else raise InvalidRequest (C-64)."""
    return _check_opaque_id("delivery_id", value)


def check_logical_turn_id(value: object) -> str:
    """Return `value` if it is a string of 1-128 characters, else raise InvalidRequest (C-64)."""
    return _check_opaque_id("logical_turn_id", value)


def _check_opaque_id(field: str, value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_ID_CHARACTERS:
        raise InvalidRequest(f"{field} must be a string of 1-{MAX_ID_CHARACTERS} characters")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidRequest(f"{field} holds an unpaired surrogate") from None
    return value


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("ascii")).hexdigest()
