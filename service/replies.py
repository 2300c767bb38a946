"""Shapes of replies, for the OpenAPI document; `present` makes the values."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

RunStatusWord = Literal[
    "queued", "running", "waiting_for_approval", "completed", "failed", "cancelled", "still_running", "cancelling"
]
CallStatusWord = Literal[
    "queued", "waiting_for_approval", "denied", "expired", "cancelled", "running", "completed", "failed",
    "outcome_unknown", "not_executed", "refused", "skipped",
]  # fmt: skip


class Reply(BaseModel):
    """Base of replies."""

    model_config = ConfigDict(extra="forbid")


class MutationOutcome(Reply):
    """A `mutation_outcome/v1` record; the full contract is at `/api/contracts/mutation_outcome_v1.json`."""

    schema_: Literal["mutation_outcome/v1"] = Field(alias="schema")
    logical_turn_id: str
    mutation_id: str
    tool: str
    status: Literal["completed", "failed", "outcome_unknown", "not_executed"]
    reason: Literal["pre_dispatch_deadline", "execution_timeout"] | None = None
    resource_id: str | None
    url: str | None
    title: str | None


class Refusal(Reply):
    """Why a call was refused; for a recorded mutation with what is on record."""

    code: str
    id: str | None = None
    title: str | None = None
    url: str | None = None
    status: str | None = None
    reason: str | None = None


class CallReply(Reply):
    """One call of a run."""

    index: int
    tool: str
    mutation_id: str
    status: CallStatusWord
    approval_id: str | None
    protected: bool
    outcome: MutationOutcome | None
    refusal: Refusal | None
    result: Any = Field(description="The tool's own content while the run's journal is kept")


class RunReply(Reply):
    """A run. `run_status` is there when `status` tells something else than what is stored."""

    run_id: str
    session_id: str
    delivery: str
    logical_turn_id: str | None
    status: RunStatusWord
    run_status: RunStatusWord | None = None
    code: str | None = None
    journal_cursor: int
    calls: list[CallReply]
    handler: str | None = Field(default=None, description="The turn handler of a handler run")
    narration: Any = Field(default=None, description="What the handler returned, once its run has ended")


class JournalEvent(Reply):
    """One numbered event of a run's journal."""

    n: int
    type: str
    at: str
    run_id: str
    index: int | None = None
    mutation_id: str | None = None
    approval_id: str | None = None
    outcome: MutationOutcome | None = None
    mutation_revision: int | None = None
    decision: str | None = None
    rule: str | None = Field(None, description="which rule answered in place of a person")
    status: str | None = None
    code: str | None = None


class EventsReply(Reply):
    """Events after a position; `next` is the position to go on from."""

    events: list[JournalEvent]
    next: int


class ApprovalReply(Reply):
    """An approval request and its decision; `arguments` are null once the call has ended."""

    id: str
    state: Literal["pending", "approved", "denied", "expired", "cancelled"]
    session_id: str
    run_id: str
    user: str
    requested_by: str
    tool: str
    arguments: dict[str, Any] | None
    mutation_id: str
    level: str
    requested_at: str
    expires_at: str
    decided_by: str | None
    decided_at: str | None
    rule: str | None


class ApprovalsReply(Reply):
    """Pending approvals, oldest first. `next` is the next page's `after`; null when there is nothing after this one.

    A page may hold fewer than `limit`, or none, and not be the last.
    """

    approvals: list[ApprovalReply]
    next: str | None


class OutcomesReply(Reply):
    """Every retained outcome of a session."""

    mutation_outcomes: list[MutationOutcome]


class TurnMutation(Reply):
    """One mutation in a turn's snapshot; `metadata` is there once a host attached some."""

    id: str
    tool: str
    status: Literal["approved", "completed", "failed", "outcome_unknown"]
    metadata: dict[str, str] | None = None


class TurnState(Reply):
    """The detached snapshot of a logical turn; `mutations` by their ids."""

    id: str
    user_id: str
    delivery: str
    deliveries: list[str]
    finished: bool
    mutations: dict[str, TurnMutation]


class StateReply(Reply):
    """The snapshot of a delivery's logical turn, or null."""

    mutation_state: TurnState | None


class ErasureReply(Reply):
    """The session is invisible; what is left of it is being deleted."""

    session_id: str
    status: Literal["erasing"]


class LiveReply(Reply):
    """The process serves."""

    status: Literal["alive"]


class ReadyReply(Reply):
    """The store answers; `durability` is how far its confirmations can be trusted."""

    status: Literal["ready"]
    durability: Literal["verified", "attested", "unsafe"]
