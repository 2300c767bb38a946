"""The owner's path for one session: recheck, dispatch once, settle, begin the next (architecture, steps 5 to 7)."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field

import structlog

from ledger.attempts import (
    Begun,
    Nothing,
    Parked,
    PolicyCheck,
    Reprotected,
    Settled,
    Settlement,
    Work,
    begin_next,
    settle_attempt,
    void_attempt,
)
from ledger.errors import Refused, StoreWentBack
from ledger.faultpoints import reach
from ledger.handlers import HandlerOffer, HandlerStart
from ledger.identity import mutation_identity_of
from ledger.ids import new_id
from ledger.policy import stricter
from ledger.states import MutationStatus
from ledger.store import ScriptCall
from workers.alarms import late_report
from workers.following import POLICY_STALE
from workers.handlers.session import SessionHandlers
from workers.retrying import NOT_NOW, confirmed, landed
from workers.shared import Shared
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
    _sending: bool = False
    _handlers: SessionHandlers | None = None
    _offer: HandlerOffer = field(default=HandlerOffer(0, 0))

    async def run(self, work: Work, asked_at: float) -> None:
        """Works until the session is given up, lost, or the worker stops. `asked_at`: when `work` was asked for."""
        try:
            await self._work(work, asked_at)
        finally:
            if self._handlers is not None:
                self._handlers.leave()

    async def _work(self, work: Work, asked_at: float) -> None:
        while True:
            match work:
                case Begun():
                    work, asked_at = await self._execute(work, asked_at)
                case HandlerStart():
                    self._its_handlers().start(work, asked_at)
                    work, asked_at = self._again()
                case Parked(news):
                    work, asked_at = await self._park(news)
                case PolicyCheck():
                    work, asked_at = await self._begin(self._resolve(work))
                case Nothing("again"):
                    work, asked_at = await self._begin()
                case Nothing(why):
                    self.given_up = why != "stopped"
                    if why == "released" and self._handlers is not None:
                        self._handlers.over()
                    return

    def cancel_asked(self, step: int) -> None:
        """The run of the call begun in `step` was cancelled; the answer that says so may come before the begin's."""
        self._cancelled = step
        if step == self._current:
            self.cancel.set()

    def heard(self, news: int | None = None) -> None:
        """A signal (None) or a renewal says that something changed in this session (C-31)."""
        if self._handlers is not None:
            self._handlers.heard(news)

    def lose(self) -> None:
        """A renewal says that the session is not ours: nothing more is sent, and no handler goes on (C-32)."""
        self.lost = True
        if self._handlers is None:
            return
        if self._sending:
            self._handlers.leave()
        else:
            # What is being asked for may have given it up just now; its answer says why the handlers stop.
            self._handlers.wake.set()

    def stop_waiting(self) -> None:
        """The worker stops: nothing here waits for a person any longer (C-34)."""
        if self._handlers is not None:
            self._handlers.stop_waiting()

    def interrupt(self) -> None:
        """The time of a warm stop is over: the call in flight is cancelled, handlers stop (C-34, C-55)."""
        self.cancel.set()
        if self._handlers is not None:
            self._handlers.leave()

    async def _execute(self, begun: Begun, asked_at: float) -> tuple[Work, float]:
        """One attempt from confirmed intent to confirmed settlement, and what comes after it."""
        reach("begin.confirmed")
        if time.monotonic() - asked_at > self.shared.settings.checkpoint_wait:
            log.warning("checkpoint_late", run_id=begun.run_id, index=begun.index)
            return await self._put_back(begun.attempt, begun)
        await self.shared.store.trusted()
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
        # Store time became monotonic time before the request left, so the deadline errs towards early (C-50).
        deadline = asked_at + (begun.deadline - begun.store_now) / 1000
        as_asked = self._handlers is None or self._handlers.begun(begun, deadline)
        if not (as_asked and _as_approved(begun)):
            return ToolReply(Verdict.NOT_EXECUTED, ARGUMENTS_CHANGED)
        self._sending = True
        try:
            return await self._dispatch(begun, deadline)
        except Exception as error:  # the router promises not to raise; if it does, nobody knows what was sent
            log.error("router_failed", error=type(error).__name__, run_id=begun.run_id, index=begun.index)
            return ToolReply(Verdict.OUTCOME_UNKNOWN)
        finally:
            self._sending = False

    async def _dispatch(self, begun: Begun, deadline: float) -> ToolReply:
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
        reach("dispatch.due")
        reply = await self.shared.router.call(begun.tool, begun.parsed_arguments(), context)
        reach("reply.received")
        return reply

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
        if self.shared.store.went_back:
            return StoreWentBack.code
        return None

    async def _settle(self, begun: Begun, reply: ToolReply) -> tuple[Work, float]:
        shared = self.shared
        next_step = self.step + 1 if self._goes_on() else None
        self._offer = shared.handlers.places.offer(1 if next_step is not None else 0)
        settlement = _settlement(reply)
        call = settle_attempt(
            self.shard,
            begun,
            self.token,
            settlement,
            next_step=next_step,
            policy=shared.following.begin(self.shard),
            yield_if_others=self._burst_over(),
            offer=self._offer,
            only_live=shared.stopping.is_set(),
        )
        asked_at = time.monotonic()
        settled = None
        reach("settle.asked")
        try:
            settled = await self._told(begun, call)
            reach("settle.confirmed")
        except Refused as error:
            log.warning("settlement_refused", code=error.code, run_id=begun.run_id, index=begun.index)
            return self._again()
        finally:
            shared.handlers.places.settle(self._offer, [settled.work if settled else None])
            if self._handlers is not None:
                self._handlers.settled(begun, reply, settled, settlement.refusal)
        shared.tally.attempt(reply.verdict)
        if settled.how == "kept":
            late_report(begun, reply.verdict)
        reach("callback.done")
        if next_step is None:
            return Nothing("stopped"), asked_at
        self.step = next_step
        if settled.refused is not None or settled.work is None:
            log.warning("next_not_begun", code=settled.refused, run_id=begun.run_id)
            return self._again()
        return settled.work, asked_at

    async def _told(self, begun: Begun, call: ScriptCall[Settled]) -> Settled:
        """The settlement once it has landed; a handler is told `outcome_unknown` when its wait is over (C-24)."""
        if self._handlers is None:
            return await landed(self.shared, call)
        landing = asyncio.ensure_future(landed(self.shared, call))
        done, _ = await asyncio.wait({landing}, timeout=self.shared.settings.settlement_wait)
        if not done:
            self._handlers.untold(begun)
        return await landing

    async def _put_back(self, attempt: str, begun: Begun | None = None) -> tuple[Work, float]:
        """An intent that was not confirmed in time goes back before anything else begins here (C-23)."""
        self.step += 1
        call = void_attempt(self.shard, self.sid, self.token, self.step, attempt, refusal=CHECKPOINT_UNAVAILABLE)
        reach("putback.asked")
        try:
            await landed(self.shared, call)
        except Refused:
            return Nothing("lost"), time.monotonic()
        reach("putback.confirmed")
        if self._handlers is not None:
            self._handlers.put_back(begun, CHECKPOINT_UNAVAILABLE)
        return self._again()

    async def _park(self, news: int) -> tuple[Work, float]:
        """Nothing to begin now; the session is kept for its handlers, or until one has a place (C-31)."""
        await self._its_handlers().parked(news, self._offer)
        self._mutations, self._since = 0, time.monotonic()
        return Nothing("again"), self._since

    def _its_handlers(self) -> SessionHandlers:
        if self._handlers is None:
            self._handlers = SessionHandlers(self.shared, self.shard, self.sid, self.token)
        return self._handlers

    def _goes_on(self) -> bool:
        """Whether to ask for more; a warm stop begins only what a handler at work still asks for (C-34)."""
        if self.lost or self.shared.past_drain:
            return False
        return not self.shared.stopping.is_set() or (self._handlers is not None and self._handlers.going)

    def _again(self) -> tuple[Work, float]:
        """The next begin takes a step of its own; whether the session is still ours, it says itself."""
        self.step += 1
        return Nothing("again"), time.monotonic()

    async def _begin(self, reprotected: Reprotected | None = None) -> tuple[Work, float]:
        """Begins the next call, and says when it was asked for; one not confirmed in time is put back (C-23)."""
        shared = self.shared
        while self._goes_on():
            asked_at = time.monotonic()
            self._offer = shared.handlers.places.offer(1)
            call = begin_next(
                self.shard,
                self.sid,
                self.token,
                self.step,
                shared.following.begin(self.shard),
                yield_if_others=self._burst_over(),
                reprotected=reprotected,
                offer=self._offer,
                only_live=shared.stopping.is_set(),
            )
            work: Work | None = None
            reach("begin.asked")
            try:
                work = await confirmed(shared.store, call, within=shared.settings.checkpoint_wait)
            except NOT_NOW:
                return await self._put_back(f"{self.token}-{self.step}")
            except Refused as error:
                if not await self._may_ask_again(error.code):
                    return Nothing("lost"), asked_at
            else:
                return work, asked_at
            finally:
                shared.handlers.places.settle(self._offer, [work])
        return Nothing("lost" if self.lost else "stopped"), time.monotonic()

    async def _may_ask_again(self, refused: str) -> bool:
        """Whether a begin that was refused so may be asked for anew, and what has to be done before."""
        if refused == POLICY_STALE:
            await self.shared.following.catch_up(self.shard)
            return True
        self.step += 1
        return refused in ("stale_step", "attempt_voided")

    def _resolve(self, check: PolicyCheck) -> Reprotected:
        """Protection by this worker's policy; the stricter of the two answers wins (C-05)."""
        try:
            mine = self.shared.following.policy.resolve(check.tool, check.parsed_arguments())
            protected, level = mine.protected, mine.level
        except Exception as error:  # a host's function decides `dynamic` levels; without its answer the strictest holds
            log.error("level_not_resolved", tool=check.tool, error=type(error).__name__)
            protected, level = True, "confirm"
        return Reprotected(
            run_id=check.run_id,
            index=check.index,
            protected=check.protected or protected,
            level=stricter(check.level, level),
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


__all__ = ["SessionOwner", "Shared"]
