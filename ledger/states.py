"""All states and the only moves between them (C-10). Stored as one letter, shown by name."""

from __future__ import annotations

from enum import StrEnum


class MutationStatus(StrEnum):
    """Status of a mutation in the ledger; `code` is the stored letter."""

    APPROVED = "approved"  # approved; no intent committed, or non-execution proven
    EXECUTION_STARTED = "execution_started"  # intent on disk; publicly unknown
    COMPLETED = "completed"  # the tool reported success and that is on disk
    FAILED = "failed"  # the tool reported a structured failure
    OUTCOME_UNKNOWN = "outcome_unknown"  # nobody can know

    @property
    def code(self) -> str:
        """The stored letter."""
        return _MUTATION_CODES[self]


_MUTATION_CODES = {
    MutationStatus.APPROVED: "a",
    MutationStatus.EXECUTION_STARTED: "s",
    MutationStatus.COMPLETED: "c",
    MutationStatus.FAILED: "f",
    MutationStatus.OUTCOME_UNKNOWN: "u",
}
MUTATION_BY_CODE = {code: status for status, code in _MUTATION_CODES.items()}


class Cause(StrEnum):
    """What moves a mutation from one status to another."""

    APPROVAL = "approval"  # a fresh approval on record
    INTENT = "intent"  # begin
    REPORT = "report"  # the owner settles its own attempt
    PUT_BACK = "put_back"  # non-execution proven: void, last check
    OWNER_LOST = "owner_lost"  # reclaim
    RECONCILED = "reconciled"  # C-91
    FIRST_HAND = "first_hand"  # the attempt itself reports after its session was reclaimed


_A, _S, _C, _F, _U = (
    MutationStatus.APPROVED,
    MutationStatus.EXECUTION_STARTED,
    MutationStatus.COMPLETED,
    MutationStatus.FAILED,
    MutationStatus.OUTCOME_UNKNOWN,
)
TRANSITIONS: frozenset[tuple[MutationStatus | None, Cause, MutationStatus]] = frozenset(
    {
        (None, Cause.APPROVAL, _A),
        (_A, Cause.INTENT, _S),
        (_S, Cause.REPORT, _C),
        (_S, Cause.REPORT, _F),
        (_S, Cause.REPORT, _U),
        (_S, Cause.PUT_BACK, _A),
        (_S, Cause.OWNER_LOST, _U),
        (_U, Cause.FIRST_HAND, _C),
        (_U, Cause.FIRST_HAND, _F),
        (_U, Cause.FIRST_HAND, _A),
        (_U, Cause.RECONCILED, _C),
        (_U, Cause.RECONCILED, _A),
        (_S, Cause.RECONCILED, _A),
    }
)
"""Every move that exists; anything else is refused."""


def may_move(before: MutationStatus | None, cause: Cause, after: MutationStatus) -> bool:
    """Whether the contract knows this move (C-10)."""
    return (before, cause, after) in TRANSITIONS


class RunStatus(StrEnum):
    """Status of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self in (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)


class CallStatus(StrEnum):
    """Status of one call of a run."""

    QUEUED = "queued"
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    OUTCOME_UNKNOWN = "outcome_unknown"
    NOT_EXECUTED = "not_executed"
    REFUSED = "refused"
    SKIPPED = "skipped"


CALL_BY_CODE = {
    "q": CallStatus.QUEUED,
    "w": CallStatus.WAITING_FOR_APPROVAL,
    "d": CallStatus.DENIED,
    "x": CallStatus.EXPIRED,
    "k": CallStatus.CANCELLED,
    "g": CallStatus.RUNNING,
    "c": CallStatus.COMPLETED,
    "f": CallStatus.FAILED,
    "u": CallStatus.OUTCOME_UNKNOWN,
    "n": CallStatus.NOT_EXECUTED,
    "r": CallStatus.REFUSED,
    "z": CallStatus.SKIPPED,
}
