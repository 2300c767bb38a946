"""What a turn handler is told of its calls, and what stops it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ledger.states import CallStatus


@dataclass(frozen=True, slots=True)
class CallResult:
    """The end of one call. `status` is `completed`, `failed`, `outcome_unknown` or `not_executed`.

    `outcome` is the durable `mutation_outcome/v1` record, None for an unprotected call and while the settlement has
    not landed (C-24). `result` is the tool's own content. `refusal` says why nothing was executed, where that has a
    code; `reason` is `execution_timeout` or `pre_dispatch_deadline` after a timeout.
    """

    tool: str
    mutation_id: str
    status: CallStatus
    result: Any = None
    outcome: dict[str, Any] | None = None
    refusal: str | None = None
    reason: str | None = None

    @property
    def completed(self) -> bool:
        """Whether the tool reported success and that is on disk."""
        return self.status is CallStatus.COMPLETED


class CallRefused(Exception):
    """A rule refused the call; nothing was executed now. `code` names it, `call.outcome` shows a recorded outcome.

    Codes: `mutation_completed`, `mutation_failed`, `mutation_outcome_unknown` (the record refuses it), `denied`,
    `expired`, `approval_not_fresh`, `arguments_changed`, `unknown_tool`, `mutation_limit`, `turn_limit`,
    `approvals_full`, `call_limit`, `logical_turn_unavailable`.
    """

    def __init__(self, code: str, call: CallResult) -> None:
        super().__init__(code)
        self.code = code
        self.call = call


class CallDenied(CallRefused):
    """A person said no."""


class CallExpired(CallRefused):
    """Nobody decided in time."""


class HandlerStopped(Exception):
    """This run of the handler goes no further: let the exception pass. `code` is the run's end code, if it has one.

    `binding`: the run ends so, whatever the handler returns.
    """

    code: str | None = None
    binding = False


class RunCancelled(HandlerStopped):
    """The run was cancelled (C-55)."""


class CeilingReached(HandlerStopped):
    """The request ceiling has passed; nothing revives it (C-50)."""

    code = "request_ceiling"


class ReplayDiverged(HandlerStopped):
    """A handler that was run again asked for another call than on record, after something may have happened (C-33)."""

    code = "replay_diverged"
    binding = True


class OwnerLost(HandlerStopped):
    """This worker no longer has the session, or stops: what the handler returns is not kept (C-32, C-34)."""
