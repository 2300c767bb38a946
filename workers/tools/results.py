"""What a call needs and what it gives back, in the words of the contract; shared by MCP and native tools."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

EXECUTION_TIMEOUT = "execution_timeout"
PRE_DISPATCH_DEADLINE = "pre_dispatch_deadline"
CANCELLED = "cancelled"
UNKNOWN_TOOL = "unknown_tool"


class Verdict(StrEnum):
    """What the reply proves about the effect (contract, section 4)."""

    COMPLETED = "completed"
    """A result without the error flag arrived, or a native handler returned success."""
    FAILED = "failed"
    """A structured error result arrived, or a native handler confirmed its failure."""
    OUTCOME_UNKNOWN = "outcome_unknown"
    """The request may have been received; nobody can say what became of it."""
    NOT_EXECUTED = "not_executed"
    """Provably no byte of the request was sent (C-56)."""


@dataclass(frozen=True, slots=True)
class ToolReply:
    """The end of one dispatch.

    `reason` is `execution_timeout`, `pre_dispatch_deadline`, `cancelled`, `unknown_tool`, what `last_check`
    said, or None. `content` is JSON-safe (orjson can write it), at most the server's `reply_keep_bytes`, and
    None with `content_withheld` if it was larger, too deep or not JSON. `detail` is one line for logs and
    never quotes arguments or results.
    """

    verdict: Verdict
    reason: str | None = None
    content: object | None = None
    content_withheld: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """The delivery that a call belongs to, as a native handler may see it."""

    session_id: str
    agent: str
    user: str
    delivery_id: str | None = None
    logical_turn_id: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class CallContext:
    """One attempt: who it is, until when (seconds of `time.monotonic`), and what may still stop it.

    `last_check` is called once, synchronously, in the step that hands the request to the transport (C-53);
    a string it returns is the reason why the request is not sent.
    """

    mutation_id: str
    logical_turn_id: str | None
    attempt: str
    run_id: str
    session_id: str
    deadline_monotonic: float
    cancel: asyncio.Event
    traceparent: str | None
    last_check: Callable[[], str | None]
    message: IncomingMessage | None = None

    def remaining(self) -> float:
        """Seconds until the deadline, negative after it."""
        return self.deadline_monotonic - time.monotonic()

    def stopped(self) -> str | None:
        """Why nothing may be begun any more, or None."""
        if self.cancel.is_set():
            return CANCELLED
        return PRE_DISPATCH_DEADLINE if self.remaining() <= 0 else None


class MCPExecutionTimeout(TimeoutError):
    """The call's deadline passed (C-54). `dispatched`: bytes may have left; `reason` is what gets stored."""

    def __init__(self, *, dispatched: bool) -> None:
        self.dispatched = dispatched
        self.reason = EXECUTION_TIMEOUT if dispatched else PRE_DISPATCH_DEADLINE
        super().__init__(self.reason)


def not_executed(reason: str | None, detail: str = "") -> ToolReply:
    """A reply that confirms non-execution."""
    return ToolReply(Verdict.NOT_EXECUTED, reason=reason, detail=detail)


def unknown(detail: str, reason: str | None = None) -> ToolReply:
    """A reply that proves nothing."""
    return ToolReply(Verdict.OUTCOME_UNKNOWN, reason=reason, detail=detail)
