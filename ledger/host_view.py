"""Calls, turns and entries as hosts see them, over HTTP and in Python alike. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ledger.records import Call, Entry, Turn
from ledger.states import CallStatus, MutationStatus

# Only these reached begin; for any other the entry, if there is one, is another call's.
_ATTEMPTED = frozenset(
    {
        CallStatus.RUNNING,
        CallStatus.COMPLETED,
        CallStatus.FAILED,
        CallStatus.OUTCOME_UNKNOWN,
        CallStatus.NOT_EXECUTED,
    }
)
_RECORDED = ("completed", "failed", "outcome_unknown")


def call_object(call: Call) -> dict[str, Any]:
    """One call of a run, with the record of its mutation if this very call was begun."""
    attempted = call.status in _ATTEMPTED and call.entry is not None
    return {
        "index": call.index,
        "tool": call.tool,
        "mutation_id": call.mutation_id,
        "status": call.status.value,
        "approval_id": call.approval_id,
        "protected": call.protected,
        "outcome": call.entry.outcome() if attempted and call.entry else None,
        "refusal": _refusal(call),
        "result": call.result,
    }


def _refusal(call: Call) -> dict[str, Any] | None:
    """Why a call was refused, with the bounded record of what happened before; never a tool result (C-11)."""
    if call.refusal is None:
        return None
    refusal: dict[str, Any] = {"code": call.refusal}
    record = call.entry.outcome() if call.entry and call.refusal.startswith("mutation_") else None
    if record is not None and record["status"] in _RECORDED:
        refusal |= {
            "id": record["resource_id"],
            "title": record["title"],
            "url": record["url"],
            "status": record["status"],
            "reason": record.get("reason"),
        }
    return refusal


def turn_state(turn: Turn) -> dict[str, Any]:
    """The detached snapshot of a logical turn, field for field as in the source specification (C-92)."""
    return {
        "id": turn.logical_turn_id,
        "user_id": turn.user,
        "delivery": turn.deliveries[0],
        "deliveries": list(turn.deliveries),
        "finished": turn.finished,
        "mutations": {entry.mutation_id: entry_state(entry) for entry in turn.entries},
    }


def turn_artifact(logical_turn_id: str | None, entries: Iterable[Entry]) -> dict[str, Any]:
    """What artifacts of a completed turn hold of the ledger; empty for a turn without mutations (C-92).

    `entries` in the order of their first intents.
    """
    if logical_turn_id is None:
        return {}
    mutations = [entry_state(entry) for entry in entries]
    return {"mutation_ledger": {"version": 1, "logical_turn_id": logical_turn_id, "mutations": mutations}}


def entry_state(entry: Entry) -> dict[str, Any]:
    """One mutation: id, tool, status as the public reads it, and the host's metadata if there is any."""
    started = entry.status is MutationStatus.EXECUTION_STARTED
    status = MutationStatus.OUTCOME_UNKNOWN if started else entry.status
    shown: dict[str, Any] = {"id": entry.mutation_id, "tool": entry.tool, "status": status.value}
    if entry.metadata:
        shown["metadata"] = dict(entry.metadata)
    return shown
