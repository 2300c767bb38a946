"""Stored records as the JSON that the command line prints. Pure; never arguments unless a caller adds them."""

from __future__ import annotations

from typing import Any

from ledger.records import Approval, Entry, Session
from ledger.states import MutationStatus
from ledger.timefmt import rfc3339


def session_view(session: Session) -> dict[str, Any]:
    """A session with its turns, oldest first, and their mutations by first intent."""
    return {
        "session_id": session.session_id,
        "tenant": session.tenant,
        "created_at": rfc3339(session.created_at),
        "last_message_at": rfc3339(session.last_message_at),
        "live_runs": session.live_runs,
        "owner": session.owner,
        "turns": [
            {
                "logical_turn_id": turn.logical_turn_id,
                "agent": turn.agent,
                "user": turn.user,
                "created_at": rfc3339(turn.created_at),
                "finished": turn.finished,
                "revision": turn.revision,
                "mutations": [mutation_view(entry) for entry in turn.entries],
            }
            for turn in session.turns
        ],
    }


def mutation_view(entry: Entry) -> dict[str, Any]:
    """A mutation; `status` is the stored one, `outcome` what is published.

    For `may_run_until`, `late_report` and `readbacks` see C-91.
    """
    return {
        "logical_turn_id": entry.logical_turn_id,
        "mutation_id": entry.mutation_id,
        "tool": entry.tool,
        "status": entry.status.value,
        "reason": entry.reason,
        "revision": entry.revision,
        "reconciled_by": entry.reconciled_by,
        "may_run_until": rfc3339(entry.not_after),
        "late_report": _reported(entry.late_report),
        "readbacks": [
            {"at": rfc3339(row.at), "by": row.by, "answer": row.answer, "note": row.note} for row in entry.readbacks
        ],
        "outcome": entry.outcome(),
    }


def _reported(status: MutationStatus | None) -> str | None:
    """A late report by its published name."""
    return "not_executed" if status is MutationStatus.APPROVED else status


def waiting_view(approval: Approval, *, arguments: bool) -> dict[str, Any]:
    """A call that waits for a person."""
    view: dict[str, Any] = {
        "approval_id": approval.approval_id,
        "run_id": approval.run_id,
        "tool": approval.tool,
        "mutation_id": approval.mutation_id,
        "level": approval.level,
        "user": approval.user,
        "requested_by": approval.requested_by,
        "requested_at": rfc3339(approval.requested_at),
        "expires_at": rfc3339(approval.expires_at),
    }
    if arguments:
        view["arguments"] = approval.arguments
    return view
