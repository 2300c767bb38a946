"""Outcome records `mutation_outcome/v1`: a pure projection of ledger entries (C-100).

Nothing here is stored as truth. A Lua script that publishes a record builds the same text by itself: it
concatenates the identifiers, status and reason, which need no escaping, and the fragment that `public_fields`
made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ledger.errors import InvalidRequest, LedgerError
from ledger.sanitise import public_resource_id, public_title, public_url

SCHEMA = "mutation_outcome/v1"
MAX_RECORD_BYTES = 16_384
MAX_METADATA_BYTES = 4_096
METADATA_FIELDS = frozenset({"id", "title", "url", "normalized_title", "scope_identity"})

Record = dict[str, str | None]

_MAX_IDENTIFIER_CHARACTERS = 200
_PUBLISHED = {
    "completed": "completed",
    "failed": "failed",
    "outcome_unknown": "outcome_unknown",
    "execution_started": "outcome_unknown",
}
# The only reasons published, each with the one ledger status it belongs to; an attempt under way has none.
_REASONS = {"approved": "pre_dispatch_deadline", "outcome_unknown": "execution_timeout"}
_RECORD_ORDER = (
    "schema",
    "logical_turn_id",
    "mutation_id",
    "tool",
    "status",
    "reason",
    "resource_id",
    "url",
    "title",
)
_NOTHING_ATTACHED = '"resource_id":null,"url":null,"title":null'
_COMPACT = json.JSONEncoder(separators=(",", ":"))
_COMPACT_UTF8 = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class EntryView:
    """What a record is derived from: one mutation's ledger entry, without times, attempts and revisions."""

    logical_turn_id: str
    mutation_id: str
    tool: str
    status: str
    intent_recorded: bool
    reason: str | None = None
    metadata: Mapping[str, str] | None = None


def project(entry: Mapping[str, Any] | EntryView) -> Record | None:
    """The public record of `entry`, or None if its mutation was never started (C-100).

    A mapping has the fields of `EntryView`; the last three may be absent. Metadata that cannot be judged is
    withheld field by field and never raises. Raises LedgerError, code `entry_unreadable`, for a status or an
    identifier that no ledger of this version writes.
    """
    view = entry if isinstance(entry, EntryView) else _view(entry)
    status = published_status(view.status, intent_recorded=view.intent_recorded)
    if status is None:
        return None
    record: Record = {
        "schema": SCHEMA,
        "logical_turn_id": _identifier(view.logical_turn_id),
        "mutation_id": _identifier(view.mutation_id),
        "tool": _identifier(view.tool),
        "status": status,
    }
    reason = published_reason(view.status, view.reason)
    if reason is not None:
        record["reason"] = reason
    resource_id, url, title = _public_values(view.metadata)
    record["resource_id"] = resource_id
    record["url"] = url
    record["title"] = title
    return record


def published_status(status: str, *, intent_recorded: bool) -> str | None:
    """The public status of a ledger status; None when the router was never entered (C-100)."""
    if status == "approved":
        return "not_executed" if intent_recorded else None
    try:
        return _PUBLISHED[status]
    except KeyError:
        raise _unreadable("status") from None


def published_reason(status: str, reason: str | None) -> str | None:
    """The reason shown for ledger status `status`: that of a settled timeout, otherwise none (C-57)."""
    return reason if reason is not None and _REASONS.get(status) == reason else None


def record_json(record: Record) -> str:
    """Compact ASCII JSON of a record, keys in the contract's order, at most `MAX_RECORD_BYTES` bytes."""
    return _COMPACT.encode({key: record[key] for key in _RECORD_ORDER if key in record})


def public_fields(metadata: Mapping[str, str] | None) -> str:
    """The record's last three members as JSON text without braces, ready to be concatenated (C-102)."""
    if not metadata:
        return _NOTHING_ATTACHED
    resource_id, url, title = _public_values(metadata)
    return _COMPACT.encode({"resource_id": resource_id, "url": url, "title": title})[1:-1]


def check_metadata(metadata: object) -> str:
    """Check host metadata and return it as compact JSON in UTF-8, keys sorted (C-90).

    Only the five string fields, together at most `MAX_METADATA_BYTES` bytes of that JSON. Raises
    InvalidRequest.
    """
    if not isinstance(metadata, dict):
        raise InvalidRequest("metadata must be an object")
    if not metadata.keys() <= METADATA_FIELDS:
        raise InvalidRequest(f"metadata may hold only {', '.join(sorted(METADATA_FIELDS))}")
    if not all(isinstance(value, str) for value in metadata.values()):
        raise InvalidRequest("metadata fields must be strings")
    too_large = f"metadata is larger than {MAX_METADATA_BYTES} bytes"
    if sum(map(len, metadata.values())) > MAX_METADATA_BYTES:
        raise InvalidRequest(too_large)
    text = _COMPACT_UTF8.encode(metadata)
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidRequest("metadata holds an unpaired surrogate") from None
    if size > MAX_METADATA_BYTES:
        raise InvalidRequest(too_large)
    return text


def _view(entry: Mapping[str, Any]) -> EntryView:
    try:
        return EntryView(
            logical_turn_id=entry["logical_turn_id"],
            mutation_id=entry["mutation_id"],
            tool=entry["tool"],
            status=entry["status"],
            intent_recorded=entry["intent_recorded"],
            reason=entry.get("reason"),
            metadata=entry.get("metadata"),
        )
    except KeyError as error:
        raise _unreadable(str(error.args[0])) from None


def _identifier(value: str) -> str:
    """Bounded identifiers and bounded fields are what keeps every record under `MAX_RECORD_BYTES`."""
    if isinstance(value, str) and len(value) <= _MAX_IDENTIFIER_CHARACTERS:
        return value
    raise _unreadable("identifier")


def _unreadable(part: str) -> LedgerError:
    return LedgerError(f"a ledger entry's {part} cannot be read by this version", code="entry_unreadable")


def _public_values(metadata: Mapping[str, Any] | None) -> tuple[str | None, str | None, str | None]:
    if not metadata:
        return None, None, None
    return (
        _judged(public_resource_id, metadata, "id"),
        _judged(public_url, metadata, "url"),
        _judged(public_title, metadata, "title"),
    )


def _judged(judge: Callable[[object], str | None], metadata: Mapping[str, Any], field: str) -> str | None:
    """The effect has happened by now: no defect in judging a field may keep its outcome from being told."""
    try:
        return judge(metadata.get(field))
    except Exception:
        return None
