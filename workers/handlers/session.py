"""The live handlers of one owned session, and everything that its owner's path must know of them (C-31, C-33)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from ledger.attempts import Begun, Settled
from ledger.errors import LedgerError, Refused
from ledger.faultpoints import reach
from ledger.handlers import CallReport, HandlerCall, HandlerOffer, HandlerStart, propose_call, watch_handlers
from ledger.long_integers import read_json
from ledger.states import CallStatus
from ledger.store import AsyncStore, ScriptCall
from workers.following import Following
from workers.handlers.host import HandlerHost, refusal
from workers.handlers.live import LiveHandler
from workers.handlers.results import CallResult, OwnerLost, ReplayDiverged, RunCancelled
from workers.handlers.running import HandlerRunner
from workers.retrying import confirmed, landed
from workers.settings import WorkerSettings
from workers.tools.results import ToolReply, Verdict

log = structlog.get_logger(__name__)

_ENDED = {
    Verdict.COMPLETED: CallStatus.COMPLETED,
    Verdict.FAILED: CallStatus.FAILED,
    Verdict.OUTCOME_UNKNOWN: CallStatus.OUTCOME_UNKNOWN,
    Verdict.NOT_EXECUTED: CallStatus.NOT_EXECUTED,
}


class Worker(Protocol):
    """What of a worker's shared things is needed here; see `workers.owner.Shared`."""

    store: AsyncStore
    settings: WorkerSettings
    following: Following
    stopping: asyncio.Event
    handlers: HandlerHost
    unlanded: int


@dataclass(slots=True)
class SessionHandlers:
    """`wake` is set when the owner should ask for work again; `idle` is true while it waits for that."""

    worker: Worker
    shard: int
    sid: str
    token: str
    live: dict[str, LiveHandler] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    _runners: dict[str, HandlerRunner] = field(default_factory=dict)
    _landing: dict[str, asyncio.Future[None]] = field(default_factory=dict)
    _seen: int | None = None
    _looking: asyncio.Task[None] | None = None
    _look_again: bool = False
    _idle: bool = False
    _counted: bool = False
    _left: bool = False

    # The owner's side

    @property
    def going(self) -> bool:
        """Whether a handler is at work that may still end by itself."""
        return any(live.stopped is None for live in self.live.values())

    def start(self, start: HandlerStart, asked_at: float) -> None:
        """Runs the handler of a run that was just started."""
        live = LiveHandler(start, asked_at, self)
        self.live[start.run_id] = live
        if self._seen is None:
            self._seen = start.news
        runner = HandlerRunner(live, self, self.worker.handlers)
        self._runners[start.run_id] = runner
        runner.start(start)

    async def parked(self, news: int, offer: HandlerOffer) -> None:
        """Waits until the owner should ask again. `offer` is what it had room for when it was told to wait."""
        host = self.worker.handlers
        if self._seen is None:
            self._seen = news
        self._missed_ends()
        short = host.places.short(offer)
        if short:
            host.places.wait(offer, self.wake.set)
        self._idle = True
        self._count()
        try:
            await self._woken()
            # Who took no place while a person was asked needs one to go on.
            while self._counted and host.gate.full and not self.worker.stopping.is_set():
                host.gate.line_up(self.wake.set)
                await self._woken()
        finally:
            self._idle = False
            self._count()
            host.gate.leave_line(self.wake.set)
            if short:
                host.places.forget(self.wake.set)

    def heard(self, news: int | None = None) -> None:
        """A signal (None) or a renewal's number says that something changed in the session."""
        if news is not None and news == self._seen:
            return
        # In this order: asking for work may give the session up, and then nobody may look any more.
        self._look(news)
        self.wake.set()

    def begun(self, begun: Begun, deadline: float) -> bool:
        """A call was begun; False when a handler's arguments are not the approved ones any more (C-04)."""
        live = self.live.get(begun.run_id)
        if live is None:
            return True
        self._landing[begun.run_id] = asyncio.get_running_loop().create_future()
        self._count()
        return live.begun(begun, deadline)

    def untold(self, begun: Begun) -> None:
        """The settlement wait is over: the handler is told that nobody knows, while the write goes on (C-24)."""
        self._deliver(begun, CallResult(begun.tool, begun.mutation_id, CallStatus.OUTCOME_UNKNOWN))

    def settled(self, begun: Begun, reply: ToolReply, settled: Settled | None, refused: str | None) -> None:
        """The settlement is on disk, or (None) refused because the ledger holds something else by now."""
        if begun.run_id not in self.live:
            return
        if settled is None:
            self._look(None)
        else:
            self._deliver(begun, _result(begun, reply, settled, refused))
        self._landed(begun.run_id)

    def put_back(self, begun: Begun | None, code: str) -> None:
        """An intent confirmed too late was put back: its call, if known here, ended without a dispatch (C-23)."""
        if begun is not None:
            self._deliver(begun, CallResult(begun.tool, begun.mutation_id, CallStatus.NOT_EXECUTED, refusal=code))
        self._look(None)

    def stop_waiting(self) -> None:
        """A warm stop: who waits for a person, or for a call that was not begun, waits no longer here (C-34)."""
        for live in list(self.live.values()):
            if live.waits_for_person:
                live.stop(OwnerLost("the worker stops"))
        self.wake.set()

    def over(self) -> None:
        """The store holds no live handler of this session any more: whatever runs here still was ended there."""
        for live in list(self.live.values()):
            live.stop(RunCancelled("the run has ended"))

    def leave(self) -> None:
        """The session is not ours any more, or will not be: handlers stop, and nothing they return is kept (C-32)."""
        for live in list(self.live.values()):
            live.stop(OwnerLost("the session has another owner"))
        for landing in self._landing.values():
            if not landing.done():
                landing.set_result(None)
        if self._looking is not None:
            self._looking.cancel()
        self._left = True
        self._count()
        self.wake.set()
        self.worker.handlers.places.pass_on()

    # The handlers' side

    def prepare(self, tool: str, arguments: object, ordinal: int) -> HandlerCall:
        """See `Desk`."""
        return self.worker.handlers.prepare(self.shard, tool, arguments, ordinal)

    async def propose(self, live: LiveHandler, call: HandlerCall) -> CallReport:
        """See `Desk`. Tried again until it is confirmed: a proposal that may have landed is not given up."""
        # Told `outcome_unknown` before its settlement landed, a handler may be faster than that (C-24).
        await self.landing(live.run_id)
        reach("propose.asked")
        try:
            report = await landed(self.worker, self._proposal(live, call))
        except Refused as error:
            match error.code:
                case "policy_stale":
                    await self.worker.following.catch_up(self.shard)
                    again = self.prepare(call.tool, read_json(call.arguments), call.ordinal)
                    return await self.propose(live, again)
                case "run_ended":
                    why: Any = RunCancelled("the run has ended")
                case "replay_diverged":
                    why = ReplayDiverged("another call than on record")
                case "lease_lost":
                    why = OwnerLost("the session has another owner")
                case code:
                    raise refusal(call, code) from None
        else:
            reach("propose.confirmed")
            return report
        live.stop(why)
        raise why

    def _proposal(self, live: LiveHandler, call: HandlerCall) -> ScriptCall[CallReport]:
        host, begin = self.worker.handlers, self.worker.following.begin(self.shard)
        return propose_call(
            self.shard,
            self.sid,
            self.token,
            live.run_id,
            call,
            policy_digest=begin.digest,
            approval_ms=host.approval_ms,
            max_pending_approvals=host.max_pending_approvals,
            declared=begin.declared,
            budget_ceiling_ms=begin.budget_ceiling_ms,
        )

    def opened(self, live: LiveHandler) -> None:
        """See `Desk`."""
        if live.waits_for_person and self.worker.stopping.is_set():
            live.stop(OwnerLost("the worker stops"))
        elif live.open is not None and not live.waits_for_person:
            self.wake.set()
        self._count()

    async def landing(self, run_id: str) -> None:
        """Returns when no settlement of this run is on its way (C-24)."""
        waiting = self._landing.get(run_id)
        if waiting is not None:
            await asyncio.shield(waiting)

    def ended(self, live: LiveHandler) -> None:
        """The handler is over, and its run with it, or it is somebody else's."""
        self.live.pop(live.run_id, None)
        self._runners.pop(live.run_id, None)
        self._landed(live.run_id)
        self.wake.set()
        self._count()

    async def _woken(self) -> None:
        await self.wake.wait()
        self.wake.clear()

    def _deliver(self, begun: Begun, result: CallResult) -> None:
        live = self.live.get(begun.run_id)
        if live is not None:
            live.deliver(begun.index, result)

    def _landed(self, run_id: str) -> None:
        landing = self._landing.pop(run_id, None)
        if landing is not None and not landing.done():
            landing.set_result(None)

    def _missed_ends(self) -> None:
        """Told that nothing can begin while a handler waits for that: its call ended otherwise."""
        for live in self.live.values():
            waiting = live.open
            if waiting is not None and not (waiting.asks_person or waiting.in_flight):
                self._look(None)
                return

    def _look(self, news: int | None) -> None:
        if news is not None and not self.live:
            self._seen = news
            return
        if self._looking is not None and not self._looking.done():
            self._look_again = True
            return
        self._looking = asyncio.create_task(self._look_around())

    async def _look_around(self) -> None:
        """Finds what became of the calls that handlers wait for: refused, denied, expired, cancelled (C-41, C-44)."""
        self._look_again = True
        while self._look_again and self.live:
            self._look_again = False
            waiting = list(self.live.values())
            rows = [(live.run_id, live.open.index if live.open else -1) for live in waiting]
            script = watch_handlers(self.shard, self.sid, self.token, rows)
            try:
                seen = await confirmed(self.worker.store, script, within=float("inf"))
            except Refused:
                # Given up or lost: the owner's next begin says which, and with it why the handlers stop.
                self.wake.set()
                return
            except LedgerError as error:
                log.warning("look_failed", code=error.code)
                return
            self._seen = seen.news
            for live, answer in zip(waiting, seen.answers, strict=True):
                self._tell(live, answer)
            self._count()

    def _tell(self, live: LiveHandler, answer: CallReport | str) -> None:
        if isinstance(answer, CallReport):
            live.report(answer)
        elif answer != "running":
            live.stop(RunCancelled("the run has ended"))

    def _count(self) -> None:
        """A session whose handlers all wait for a person takes no place from others (architecture, turn handlers)."""
        waits = self._idle and bool(self.live) and not self._left
        if self._counted:
            # Also once a person has decided, until the gate lets it go on.
            waits = waits and all(live.waits_for_begin for live in self.live.values())
        else:
            waits = waits and all(live.waits_for_person for live in self.live.values())
        if waits != self._counted:
            self._counted = waits
            gate = self.worker.handlers.gate
            (gate.park if waits else gate.unpark)()


def _result(begun: Begun, reply: ToolReply, settled: Settled, refused: str | None) -> CallResult:
    """By the record where there is one: somebody may have reconciled the mutation before its report came."""
    record = json.loads(settled.record) if settled.record else None
    return CallResult(
        tool=begun.tool,
        mutation_id=begun.mutation_id,
        status=CallStatus(record["status"]) if record else _ENDED[reply.verdict],
        result=reply.content,
        outcome=record,
        refusal=refused,
        reason=record.get("reason") if record else reply.reason,
    )
