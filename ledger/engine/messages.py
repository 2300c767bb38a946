"""What a host hands in and what it gets back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ledger.errors import Refused


class MessageLike(Protocol):
    """What names a delivery. A native tool's `get_tool_route_context(ctx).incoming_message` is one too."""

    @property
    def session_id(self) -> str:
        """The session."""

    @property
    def agent(self) -> str | None:
        """Whose session it is; None: the engine's agent."""

    @property
    def user(self) -> str | None:
        """For whom; None: the engine's principal."""

    @property
    def delivery_id(self) -> str | None:
        """The stable retry key."""

    @property
    def logical_turn_id(self) -> str | None:
        """The logical turn that the delivery continues or made, if that is known."""


@dataclass(eq=False, slots=True)
class IncomingMessage:
    """One delivery: `calls` as `(tool, arguments)` make a plan, `handler` (with `text` and `input`) a handler run.

    Reuse `delivery_id` (or the transport's `message_id`) only for redelivery of the same request. Without either the
    engine writes the id that it made into `delivery_id`, and an identical live request takes this one in (C-61).
    `deadline_monotonic` is the host's own deadline (C-50). `logical_turn_id` is set by `Engine.resume_logical_turn`.
    """

    session_id: str
    user: str | None = None
    agent: str | None = None
    calls: Sequence[tuple[str, Mapping[str, Any]]] | None = None
    on_error: Literal["stop", "continue"] = "stop"
    handler: str | None = None
    text: str | None = None
    input: Any = None
    message_id: str | None = None
    delivery_id: str | None = None
    deadline_monotonic: float | None = None
    traceparent: str | None = None
    logical_turn_id: str | None = None


class ContinuationUnavailable(Refused, ValueError):
    """A logical turn that cannot be continued: unknown, foreign, erased, pruned or expired (C-63)."""

    code = "logical_turn_unavailable"


@dataclass(frozen=True, slots=True)
class TurnResult:
    """How a delivery's run ended, or `still_running` when the wait ran out first (C-61).

    `status` is `completed`, `failed`, `cancelled` or `still_running`; `run_status` what is stored. `calls` are as the
    HTTP API shows them: index, tool, mutation_id, status, approval_id, protected, outcome, refusal, result.
    `narration` is what a turn handler returned. `turn_artifact` holds the section `mutation_ledger` (C-92).
    """

    status: str
    run_status: str
    run_id: str
    session_id: str
    delivery: str
    delivery_id: str
    logical_turn_id: str | None
    code: str | None
    narration: Any
    calls: tuple[dict[str, Any], ...]
    turn_artifact: dict[str, Any]

    @property
    def still_running(self) -> bool:
        """Whether the run goes on; hand the same message in again to wait for it."""
        return self.status == "still_running"
