"""The owner's path for one session: recheck, dispatch once, settle, begin the next (architecture, steps 5 to 7)."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from ledger.attempts import (
    BeginPolicy,
    Begun,
    Nothing,
    PolicyCheck,
    Reprotected,
    Settlement,
    Work,
    begin_next,
    settle_attempt,
    void_attempt,
)
from ledger.errors import Refused
from ledger.identity import mutation_identity_of
from ledger.ids import new_id
from ledger.policy import Policy, stricter
from ledger.states import MutationStatus
from ledger.store import AsyncStore
from workers.retrying import NOT_NOW, confirmed, landed
from workers.settings import WorkerSettings
from workers.tools.results import (
    CANCELLED,
    EXECUTION_TIMEOUT,
    PRE_DISPATCH_DEADLINE,
    UNKNOWN_TOOL,
    CallContext,
    IncomingMessage,
    ToolReply,
    Verdict,
)

log = structlog.get_logger(__name__)

BURST_MUTATIONS = 32
BURST_SECONDS = 5.0
CHECKPOINT_UNAVAILABLE = "mutation_checkpoint_unavailable"
ARGUMENTS_CHANGED = "arguments_changed"
_STATUS = {
    Verdict.COMPLETED: MutationStatus.COMPLETED,
    Verdict.FAILED: MutationStatus.FAILED,
    Verdict.OUTCOME_UNKNOWN: MutationStatus.OUTCOME_UNKNOWN,
    Verdict.NOT_EXECUTED: MutationStatus.APPROVED,
}
_REASONS = (EXECUTION_TIMEOUT, PRE_DISPATCH_DEADLINE)
_REFUSALS = (UNKNOWN_TOOL, ARGUMENTS_CHANGED)


class Router(Protocol):
    """What runs a tool; see `workers.tools.router.ToolRouter`."""

    async def call(self, tool: str, arguments: dict[str, Any], context: CallContext) -> ToolReply:
        """Runs one tool at most once and says what that proves."""


@dataclass(slots=True)
class Shared:
    """What all sessions of a worker share. `past_drain`: a warm stop gives no call any more time (C-34)."""

    store: AsyncStore
    router: Router
    policy: Policy
    begin: BeginPolicy
    settings: WorkerSettings
    stopping: asyncio.Event
    unlanded: int = 0
    past_drain: bool = False


@dataclass(slots=True)
class SessionOwner:
    """One owned session. `lease_from` is this process's clock before the last confirmed renewal was sent (C-53)."""

    shared: Shared
    shard: int
    sid: str
    token: str
    lease_from: float
    step: int = 1
    lost: bool = False
    given_up: bool = False
    cancel: asyncio.Event = field(default_factory=asyncio.Event)
    _current: int = 0
    _cancelled: int = 0
    _entered: int = 0
    _mutations: int = 0
    _since: float = field(default_factory=time.monotonic)

    async def run(self, work: Work, asked_at: float) -> None:
        """Works until the session is given up, lost, or the worker stops. `asked_at`: when `work` was asked for."""
        while True:
            match work:
                case Begun():
                    work, asked_at = await self._execute(work, asked_at)
                case PolicyCheck():
                    work, asked_at = await self._begin(self._resolve(work))
                case Nothing("again"):
                    work, asked_at = await self._begin()
                case Nothing(why):
                    self.given_up = why != "stopped"
                    return

    def cancel_asked(self, step: int) -> None:
        """The run of the call begun in `step` was cancelled; the answer that says so may come before the begin's."""
        self._cancelled = step
        if step == self._current:
            self.cancel.set()

    async def _execute(self, begun: Begun, asked_at: float) -> tuple[Work, float]:
        """One attempt from confirmed intent to confirmed settlement, and what comes after it."""
        if time.monotonic() - asked_at > self.shared.settings.checkpoint_wait:
            log.warning("checkpoint_late", run_id=begun.run_id, index=begun.index)
            return await self._put_back(begun.attempt)
        # An event of its own: what was asked of the call before says nothing about this one.
        self.cancel, self._current = asyncio.Event(), begun.step
        if begun.step == self._cancelled or self.shared.past_drain:
            self.cancel.set()
        reply = await self._attempt(begun, asked_at)
        self._mutations += 1
        return await self._settle(begun, reply)

    async def _attempt(self, begun: Begun, asked_at: float) -> ToolReply:
        if begun.step <= self._entered:
            # Only a fault in this program could offer an attempt twice; even then it is sent once.
            log.error("attempt_offered_twice", run_id=begun.run_id, index=begun.index)
            return ToolReply(Verdict.OUTCOME_UNKNOWN)
        self._entered = begun.step
        if not _as_approved(begun):
            return ToolReply(Verdict.NOT_EXECUTED, ARGUMENTS_CHANGED)
        try:
            return await self._dispatch(begun, asked_at)
        except Exception as error:  # the router promises not to raise; if it does, nobody knows what was sent
            log.error("router_failed", error=type(error).__name__, run_id=begun.run_id, index=begun.index)
            return ToolReply(Verdict.OUTCOME_UNKNOWN)

    async def _dispatch(self, begun: Begun, asked_at: float) -> ToolReply:
        # Store time became monotonic time before the request left, so the deadline errs towards early (C-50).
        deadline = asked_at + (begun.deadline - begun.store_now) / 1000
        context = CallContext(
            mutation_id=begun.mutation_id,
            logical_turn_id=begun.logical_turn_id,
            attempt=begun.attempt,
            run_id=begun.run_id,
            session_id=begun.session_id,
            deadline_monotonic=deadline,
            cancel=self.cancel,
            traceparent=begun.traceparent,
            last_check=lambda: self._last_check(deadline),
            message=IncomingMessage(
                begun.session_id, begun.agent, begun.user, begun.delivery_id, begun.logical_turn_id
            ),
        )
        return await self.shared.router.call(begun.tool, begun.parsed_arguments(), context)

    def _last_check(self, deadline: float) -> str | None:
        """Asked in the step that hands the bytes to the transport: cancelled, too late, or lease too short (C-53)."""
        if self.cancel.is_set() or self.shared.past_drain:
            return CANCELLED
        now = time.monotonic()
        if now >= deadline:
            return PRE_DISPATCH_DEADLINE
        left = self.lease_from + self.shared.settings.lease - now
        if self.lost or left < self.shared.settings.lease_margin:
            return "lease"
        return None

    async def _settle(self, begun: Begun, reply: ToolReply) -> tuple[Work, float]:
        shared = self.shared
        next_step = None if shared.stopping.is_set() else self.step + 1
        call = settle_attempt(
            self.shard,
            begun,
            self.token,
            _settlement(reply),
            next_step=next_step,
            policy=shared.begin,
            yield_if_others=self._burst_over(),
        )
        asked_at = time.monotonic()
        try:
            settled = await landed(shared, call)
        except Refused as error:
            log.warning("settlement_refused", code=error.code, run_id=begun.run_id, index=begun.index)
            return self._again()
        if next_step is None:
            return Nothing("stopped"), asked_at
        self.step = next_step
        if settled.refused is not None or settled.work is None:
            log.warning("next_not_begun", code=settled.refused, run_id=begun.run_id)
            return self._again()
        return settled.work, asked_at

    async def _put_back(self, attempt: str) -> tuple[Work, float]:
        """An intent that was not confirmed in time goes back before anything else begins here (C-23)."""
        self.step += 1
        call = void_attempt(self.shard, self.sid, self.token, self.step, attempt, refusal=CHECKPOINT_UNAVAILABLE)
        try:
            await landed(self.shared, call)
        except Refused:
            return Nothing("lost"), time.monotonic()
        return self._again()

    def _again(self) -> tuple[Work, float]:
        """The next begin takes a step of its own; whether the session is still ours, it says itself."""
        self.step += 1
        return Nothing("again"), time.monotonic()

    async def _begin(self, reprotected: Reprotected | None = None) -> tuple[Work, float]:
        """Begins the next call, and says when it was asked for; one not confirmed in time is put back (C-23)."""
        shared = self.shared
        while not (shared.stopping.is_set() or self.lost):
            asked_at = time.monotonic()
            call = begin_next(
                self.shard,
                self.sid,
                self.token,
                self.step,
                shared.begin,
                yield_if_others=self._burst_over(),
                reprotected=reprotected,
            )
            try:
                return await confirmed(shared.store, call, within=shared.settings.checkpoint_wait), asked_at
            except NOT_NOW:
                return await self._put_back(f"{self.token}-{self.step}")
            except Refused as error:
                if error.code not in ("stale_step", "attempt_voided"):
                    return Nothing("lost"), asked_at
                self.step += 1
        return Nothing("lost" if self.lost else "stopped"), time.monotonic()

    def _resolve(self, check: PolicyCheck) -> Reprotected:
        """Protection by this worker's policy; the stricter of the two answers wins (C-05)."""
        mine = self.shared.policy.resolve(check.tool, {})
        return Reprotected(
            run_id=check.run_id,
            index=check.index,
            protected=check.protected or mine.protected,
            level=stricter(check.level, mine.level),
            approval_id=new_id(self.shard),
            approval_ms=self.shared.settings.approval_ms,
        )

    def _burst_over(self) -> bool:
        """Whether it is time to let other sessions have a turn (C-31)."""
        return self._mutations >= BURST_MUTATIONS or time.monotonic() - self._since > BURST_SECONDS


def _as_approved(begun: Begun) -> bool:
    """Whether tool and arguments still are what the mutation's id was made of (C-04)."""
    try:
        return mutation_identity_of(begun.tool, begun.arguments) == begun.mutation_id
    except UnicodeEncodeError:
        return False


def _settlement(reply: ToolReply) -> Settlement:
    """What a reply means for the ledger. Only the two timeout reasons are stored (C-57)."""
    return Settlement(
        status=_STATUS[reply.verdict],
        reason=reply.reason if reply.reason in _REASONS else None,
        result=_result(reply.content),
        refusal=reply.reason if reply.verdict is Verdict.NOT_EXECUTED and reply.reason in _REFUSALS else None,
    )


def _result(content: object) -> str | None:
    if content is None:
        return None
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


__all__ = ["Router", "SessionOwner", "Shared"]
