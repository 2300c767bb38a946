"""The owner's path for one session: recheck, dispatch once, settle, begin the next (architecture, steps 5 to 7)."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

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
from ledger.errors import Refused, StoreError, StoreUnavailable
from ledger.ids import new_id
from ledger.policy import Policy, stricter
from ledger.states import MutationStatus
from ledger.store import AsyncStore, ScriptCall
from workers.retrying import LONGEST_PAUSE, confirmed
from workers.settings import WorkerSettings
from workers.tools.results import (
    EXECUTION_TIMEOUT,
    PRE_DISPATCH_DEADLINE,
    UNKNOWN_TOOL,
    CallContext,
    IncomingMessage,
    ToolReply,
    Verdict,
)

T = TypeVar("T")
log = structlog.get_logger(__name__)

BURST_MUTATIONS = 32
BURST_SECONDS = 5.0
CHECKPOINT_UNAVAILABLE = "mutation_checkpoint_unavailable"
_STATUS = {
    Verdict.COMPLETED: MutationStatus.COMPLETED,
    Verdict.FAILED: MutationStatus.FAILED,
    Verdict.OUTCOME_UNKNOWN: MutationStatus.OUTCOME_UNKNOWN,
    Verdict.NOT_EXECUTED: MutationStatus.APPROVED,
}
_REASONS = (EXECUTION_TIMEOUT, PRE_DISPATCH_DEADLINE)


class Router(Protocol):
    """What runs a tool; see `workers.tools.router.ToolRouter`."""

    async def call(self, tool: str, arguments: dict[str, Any], context: CallContext) -> ToolReply:
        """Runs one tool at most once and says what that proves."""


@dataclass(slots=True)
class Shared:
    """What all sessions of a worker share."""

    store: AsyncStore
    router: Router
    policy: Policy
    begin: BeginPolicy
    settings: WorkerSettings
    stopping: asyncio.Event
    unlanded: int = 0


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
    in_flight: bool = True
    given_up: bool = False
    cancel: asyncio.Event = field(default_factory=asyncio.Event)
    _mutations: int = 0
    _since: float = field(default_factory=time.monotonic)

    async def run(self, work: Work, asked_at: float) -> None:
        """Works until the session is given up, lost, or the worker stops. `asked_at`: when `work` was asked for."""
        while True:
            match work:
                case Begun():
                    work, asked_at = await self._execute(work, asked_at)
                case PolicyCheck():
                    asked_at = time.monotonic()
                    work = await self._begin(self._resolve(work))
                case Nothing("again"):
                    asked_at = time.monotonic()
                    work = await self._begin(None)
                case Nothing(why):
                    self.given_up = why != "stopped"
                    return

    async def _execute(self, begun: Begun, asked_at: float) -> tuple[Work, float]:
        """One attempt from confirmed intent to confirmed settlement, and what comes after it."""
        if time.monotonic() - asked_at > self.shared.settings.checkpoint_wait:
            return await self._put_back(begun)
        self.cancel.clear()
        reply = await self._dispatch(begun, asked_at)
        self._mutations += 1
        return await self._settle(begun, reply)

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
        if self.cancel.is_set():
            return "cancelled"
        now = time.monotonic()
        if now >= deadline:
            return PRE_DISPATCH_DEADLINE
        left = self.lease_from + self.shared.settings.lease - now
        if self.lost or left < self.shared.settings.lease_margin:
            return "lease"
        return None

    async def _settle(self, begun: Begun, reply: ToolReply) -> tuple[Work, float]:
        shared = self.shared
        stopping = shared.stopping.is_set()
        next_step = None if stopping else self.step + 1
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
            settled = await self._land(call)
        except Refused as error:
            log.warning("settlement_refused", code=error.code, run_id=begun.run_id, index=begun.index)
            return await self._after_refusal(stopping)
        if next_step is None:
            return Nothing("stopped"), asked_at
        self.step += 1
        if settled.refused is not None or settled.work is None:
            log.warning("next_not_begun", code=settled.refused, run_id=begun.run_id)
            asked_at = time.monotonic()
            return await self._begin(None, new_step=True), asked_at
        return settled.work, asked_at

    async def _after_refusal(self, stopping: bool) -> tuple[Work, float]:
        """Somebody else holds the entry; whether the session is still ours, the next begin says."""
        asked_at = time.monotonic()
        if stopping or self.lost:
            return Nothing("lost"), asked_at
        return await self._begin(None), asked_at

    async def _land(self, call: ScriptCall[T]) -> T:
        """Re-sends a settlement until it lands; what takes longer than its wait counts as unlanded (C-24)."""
        shared = self.shared
        try:
            return await confirmed(shared.store, call, within=shared.settings.settlement_wait)
        except StoreUnavailable:
            shared.unlanded += 1
        try:
            while True:
                try:
                    return await confirmed(shared.store, call, within=float("inf"))
                except Refused:
                    raise
                except StoreError as error:
                    # A store that went back is answered by a person; the report is kept until it lands.
                    log.error("settlement_waits", code=error.code)
                    await asyncio.sleep(LONGEST_PAUSE)
        finally:
            shared.unlanded -= 1

    async def _put_back(self, begun: Begun) -> tuple[Work, float]:
        """The intent was confirmed too late: it goes back before anything else begins here (C-23)."""
        log.warning("checkpoint_late", run_id=begun.run_id, index=begun.index)
        self.step += 1
        call = void_attempt(self.shard, self.sid, self.token, self.step, begun.attempt, refusal=CHECKPOINT_UNAVAILABLE)
        try:
            await self._land(call)
        except Refused:
            return Nothing("lost"), time.monotonic()
        if self.shared.stopping.is_set():
            return Nothing("stopped"), time.monotonic()
        return await self._begin(None, new_step=True), time.monotonic()

    async def _begin(self, reprotected: Reprotected | None, *, new_step: bool = False) -> Work:
        """Begins the next call; one that is not confirmed in time is put back (C-23)."""
        shared = self.shared
        if new_step:
            self.step += 1
        while True:
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
                return await confirmed(shared.store, call, within=shared.settings.checkpoint_wait)
            except StoreUnavailable:
                self.step += 1
                attempt = f"{self.token}-{self.step - 1}"
                void = void_attempt(
                    self.shard, self.sid, self.token, self.step, attempt, refusal=CHECKPOINT_UNAVAILABLE
                )
                try:
                    await self._land(void)
                except Refused:
                    return Nothing("lost")
                self.step += 1
            except Refused as error:
                if error.code in ("stale_step", "attempt_voided"):
                    self.step += 1
                    continue
                return Nothing("lost")

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


def _settlement(reply: ToolReply) -> Settlement:
    """What a reply means for the ledger. Only the two timeout reasons are stored (C-57)."""
    return Settlement(
        status=_STATUS[reply.verdict],
        reason=reply.reason if reply.reason in _REASONS else None,
        result=_result(reply.content),
        refusal=UNKNOWN_TOOL if reply.verdict is Verdict.NOT_EXECUTED and reply.reason == UNKNOWN_TOOL else None,
    )


def _result(content: object) -> str | None:
    if content is None:
        return None
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


__all__ = ["Router", "SessionOwner", "Shared"]
