"""Stored records as the public JSON of the API. Pure."""

from __future__ import annotations

from typing import Any

from ledger.host_view import call_object
from ledger.records import Approval, Event, Run, Turn
from ledger.states import CALL_BY_CODE, CallStatus
from ledger.timefmt import optional, rfc3339

BY_RULE = "rule:"


def run_object(run: Run, *, shown_as: str | None = None) -> dict[str, Any]:
    """A run as every reply shows it. `shown_as` replaces `status`; the stored one is then `run_status`."""
    status = shown_as or run.status.value
    shown: dict[str, Any] = {
        "run_id": run.run_id,
        "session_id": run.session_id,
        "delivery": run.delivery,
        "logical_turn_id": run.logical_turn_id,
        "status": status,
    }
    if status != run.status.value:
        shown["run_status"] = run.status.value
    if run.end_code is not None:
        shown["code"] = run.end_code
    if run.handler is not None:
        shown |= {"handler": run.handler, "narration": run.narration}
    shown["journal_cursor"] = run.journal_length
    shown["calls"] = [call_object(call) for call in run.calls]
    return shown


def event_object(run_id: str, event: Event) -> dict[str, Any]:
    """One journal event. What happened is `decision`, `status` or `code`, as its type has it (C-112)."""
    shown: dict[str, Any] = {"n": event.number, "type": event.type, "at": rfc3339(event.at), "run_id": run_id}
    if event.index is not None:
        shown["index"] = event.index
    if event.mutation_id is not None:
        shown["mutation_id"] = event.mutation_id
    if event.approval_id is not None:
        shown["approval_id"] = event.approval_id
    if event.outcome is not None:
        shown["outcome"] = event.outcome
        shown["mutation_revision"] = event.revision
    if event.word is not None:
        shown |= _happened(event.type, event.word)
    return shown


def _happened(kind: str, word: str) -> dict[str, str]:
    match kind:
        case "approval_decided":
            return _decided(word)
        case "run_completed":
            return {"status": word}
        case "run_failed":
            return {"status": "failed"} if word == "failed" else {"status": "failed", "code": word}
        case "tool_result" if word == "a":
            # A settlement's letter is the entry's: approved again means that nothing was executed.
            return {"status": CallStatus.NOT_EXECUTED.value}
        case "tool_result" if word in CALL_BY_CODE:
            return {"status": CALL_BY_CODE[word].value}
        case "tool_result" if word == "deadline":
            return {"status": CallStatus.NOT_EXECUTED.value, "code": word}
        case "tool_result":
            return {"status": CallStatus.REFUSED.value, "code": word}
        case _:
            return {"code": word}


def _decided(word: str) -> dict[str, str]:
    """A decision, or the name of the rule that answered in place of a person (C-43)."""
    if word.startswith(BY_RULE):
        return {"decision": "approved", "rule": word.removeprefix(BY_RULE)}
    return {"decision": word}


def approval_object(approval: Approval) -> dict[str, Any]:
    """An approval as the inbox shows it. A request answered by a rule is never made, so `rule` is null here."""
    return {
        "id": approval.approval_id,
        "state": approval.state,
        "session_id": approval.session_id,
        "run_id": approval.run_id,
        "user": approval.user,
        "requested_by": approval.requested_by,
        "tool": approval.tool,
        "arguments": approval.arguments,
        "mutation_id": approval.mutation_id,
        "level": approval.level,
        "requested_at": rfc3339(approval.requested_at),
        "expires_at": rfc3339(approval.expires_at),
        "decided_by": approval.decided_by,
        "decided_at": optional(approval.decided_at),
        "rule": None,
    }


def changed_outcomes(turn: Turn, after: int) -> list[tuple[int, dict[str, Any]]]:
    """`(revision, record)` of what changed after a cursor and of every unknown, oldest revision first (C-110)."""
    found = []
    for entry in turn.entries:
        record = entry.outcome()
        if record is not None and (entry.revision > after or record["status"] == "outcome_unknown"):
            found.append((entry.revision, record))
    return sorted(found, key=lambda pair: pair[0])
