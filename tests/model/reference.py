"""The contract's view of mutations and approvals, without a store: what may follow what.

The state machine tells it what it did; the reference says what that must come to, or fails where the contract knows
no such move. Nothing here looks at how the ledger stores anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ledger.attempts import Begun
from ledger.records import Call
from ledger.states import Cause, MutationStatus, may_move

A, S, C, F, U = (
    MutationStatus.APPROVED,
    MutationStatus.EXECUTION_STARTED,
    MutationStatus.COMPLETED,
    MutationStatus.FAILED,
    MutationStatus.OUTCOME_UNKNOWN,
)
REFUSALS = {S: "mutation_outcome_unknown", U: "mutation_outcome_unknown", C: "mutation_completed", F: "mutation_failed"}
Key = tuple[str, str]
"""Logical turn id and mutation id."""


@dataclass(slots=True)
class Mutation:
    """One mutation. `reported`: its attempt told its own end; `reconciled`: a person did (C-91)."""

    status: MutationStatus | None = None
    attempt: str = ""
    previous: str = ""
    call: tuple[str, int] = ("", 0)
    revision: int = 0
    reported: bool = False
    reconciled: bool = False
    metadata: dict[str, str] | None = None

    def move(self, cause: Cause, after: MutationStatus) -> None:
        """Follows a move of the contract's table."""
        assert may_move(self.status, cause, after), f"{self.status} --{cause}--> {after}"
        self.status = after


@dataclass(slots=True)
class Reference:
    """All mutations and approvals of a store."""

    mutations: dict[Key, Mutation] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)
    attempts: set[str] = field(default_factory=set)
    approvals: dict[str, str] = field(default_factory=dict)
    consumed: set[str] = field(default_factory=set)

    def of(self, work: Begun) -> Mutation:
        """The mutation of an attempt."""
        return self.mutations[key_of(work)]

    def begun(self, work: Begun, call: Call) -> None:
        """An attempt was handed to an owner: never twice, never without a fresh approval (C-13, C-22)."""
        assert work.attempt not in self.attempts
        self.attempts.add(work.attempt)
        if call.approval_id is not None:
            assert self.approvals.get(call.approval_id) == "approved"
            assert call.approval_id not in self.consumed
            self.consumed.add(call.approval_id)
        if not work.protected:
            return
        assert call.approval_id is not None or call.level is None or call.rule is not None
        mutation = self.mutations.setdefault(key_of(work), Mutation())
        if mutation.status is None:
            mutation.move(Cause.APPROVAL, A)
        mutation.move(Cause.INTENT, S)
        mutation.previous, mutation.attempt = mutation.attempt, work.attempt
        mutation.call = (work.run_id, work.index)
        mutation.reported = mutation.reconciled = False
        self._revise(key_of(work))

    def report(self, work: Begun, status: MutationStatus) -> str:
        """The attempt reports; what the ledger must answer: settled, late, kept, repeated, or attempt_mismatch."""
        mutation = self.of(work)
        if mutation.previous == work.attempt and status is A:
            return "repeated"
        if mutation.attempt != work.attempt:
            return "attempt_mismatch"
        if mutation.reconciled:
            return "kept"
        if mutation.status is S:
            mutation.move(Cause.PUT_BACK if status is A else Cause.REPORT, status)
            how = "settled"
        elif mutation.status is U and not mutation.reported and status is not U:
            mutation.move(Cause.FIRST_HAND, status)
            how = "late"
        else:
            mutation.reported = True
            return "repeated"
        mutation.reported = True
        self._revise(key_of(work))
        return how

    def put_back(self, work: Begun) -> None:
        """The intent is taken back; the attempt never existed (C-23)."""
        mutation = self.of(work)
        if mutation.status is S:
            mutation.move(Cause.PUT_BACK, A)
            self._revise(key_of(work))
            mutation.attempt = ""

    def owner_lost(self, work: Begun) -> None:
        """Its owner is gone (C-33)."""
        if work.protected and self.of(work).status is S:
            self.of(work).move(Cause.OWNER_LOST, U)
            self._revise(key_of(work))

    def reconcile(self, key: Key, *, completed: bool, stopped: bool) -> str:
        """A person says what happened; what the ledger must answer (C-91)."""
        mutation = self.mutations[key]
        after = C if completed else A
        if mutation.reconciled and mutation.status is after:
            return "repeated"
        if mutation.status not in (S, U):
            return "not_reconcilable"
        running = mutation.status is S if completed else not (mutation.reported or stopped)
        if running:
            return "attempt_may_be_running"
        mutation.move(Cause.RECONCILED, after)
        mutation.reconciled = True
        self._revise(key)
        return "reconciled"

    def attach(self, key: Key, metadata: dict[str, str]) -> None:
        """A host attaches metadata; the same again is no change (C-12, C-90)."""
        if self.mutations[key].metadata != metadata:
            self.mutations[key].metadata = metadata
            self._revise(key)

    def decide(self, approval_id: str, state: str) -> str:
        """A decision, an expiry or a cancellation; the state that counts is the first (C-41)."""
        return self.approvals.setdefault(approval_id, state)

    def _revise(self, key: Key) -> None:
        turn = key[0]
        self.revisions[turn] = self.revisions.get(turn, 0) + 1
        self.mutations[key].revision = self.revisions[turn]


def key_of(work: Begun) -> Key:
    """Which mutation an attempt is of."""
    assert work.logical_turn_id is not None
    return work.logical_turn_id, work.mutation_id
