"""One live handler run in this worker: its calls, one after the other, its clocks, and what stops it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Protocol

from ledger.attempts import Begun
from ledger.handlers import CallReport, HandlerCall, HandlerStart
from ledger.identity import same_arguments
from ledger.states import CallStatus
from workers.handlers.results import (
    CallDenied,
    CallExpired,
    CallRefused,
    CallResult,
    HandlerStopped,
    OwnerLost,
    RunCancelled,
)

OPEN = frozenset({CallStatus.QUEUED, CallStatus.WAITING_FOR_APPROVAL, CallStatus.RUNNING})


class Desk(Protocol):
    """Where a handler's calls are handed in; see `SessionHandlers`."""

    def prepare(self, tool: str, arguments: object, ordinal: int) -> HandlerCall:
        """The call as this worker's policy resolves it. Raises InvalidRequest or CallRefused."""

    async def propose(self, live: LiveHandler, call: HandlerCall) -> CallReport:
        """Writes the call into the ledger. Raises CallRefused or HandlerStopped."""

    def opened(self, live: LiveHandler) -> None:
        """The handler waits for its open call now, or no longer."""


@dataclass(slots=True)
class OpenCall:
    """The call that the handler waits for. `arguments` are the handler's own, which it might still change (C-04)."""

    index: int
    call: HandlerCall
    arguments: object
    end: asyncio.Future[CallResult]
    asks_person: bool
    in_flight: bool = False


class LiveHandler:
    """Runs in the worker's loop, except that `deadline_monotonic` and `stopped` may be read anywhere."""

    def __init__(self, start: HandlerStart, asked_at: float, desk: Desk) -> None:
        self.run_id = start.run_id
        self.name = start.handler
        self.open: OpenCall | None = None
        self.stopped: HandlerStopped | None = None
        self.halted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Store time became monotonic time before the request left, so clocks err towards early (C-50).
        self.ceiling = asked_at + (start.ceiling - start.store_now) / 1000
        self._session_ends = asked_at + start.session_left / 1000
        self._session_left: float | None = None
        self._call_ends = 0.0
        self._desk = desk
        self._ordinal = 0
        self._one_call = asyncio.Lock()
        self._calls: set[asyncio.Task[CallResult]] = set()

    @property
    def deadline_monotonic(self) -> float:
        """The session clock, which stands still while a person is asked, or the call's own allowance (C-51, C-52)."""
        left = self._session_left
        ends = self._session_ends if left is None else time.monotonic() + left
        return min(self.ceiling, max(ends, self._call_ends))

    @property
    def waits_for_person(self) -> bool:
        """Whether nothing can go on here before somebody decides."""
        return self.open is not None and self.open.asks_person

    @property
    def waits_for_begin(self) -> bool:
        """Whether it waits for its call to be begun, or for a person before that."""
        return self.open is not None and not self.open.in_flight

    async def call(self, tool: str, arguments: object) -> CallResult:
        """See `AsyncExecutor.call`. Who gives up the wait leaves the call as it is."""
        work = asyncio.create_task(self._call(tool, arguments))
        self._calls.add(work)
        work.add_done_callback(self._called)
        return await asyncio.shield(work)

    def stop(self, why: HandlerStopped) -> None:
        """Stops the handler; the first reason stays. A call in flight is waited for, unless the session is lost."""
        lost = isinstance(why, OwnerLost)
        if self.stopped is None:
            self.stopped = why
            self.halted.set_result(None)
        if lost or self.open is None or not self.open.in_flight:
            for work in self._calls:
                work.cancel()

    async def call_ended(self) -> None:
        """Returns when no call of this run is in flight."""
        while self.open is not None and self.open.in_flight:
            await asyncio.wait({self.open.end})

    async def quiet(self) -> None:
        """Returns when nobody waits for a call of this run any more; what was not begun is given up."""
        while self._calls:
            if self.open is None or not self.open.in_flight:
                for work in self._calls:
                    work.cancel()
            await asyncio.wait(set(self._calls))

    def begun(self, begun: Begun, deadline: float) -> bool:
        """The call was begun. Answers whether the arguments still are the approved ones (C-04)."""
        waiting = self.open
        if waiting is None or waiting.index != begun.index:
            return True
        waiting.in_flight, waiting.asks_person = True, False
        self._clock_runs()
        self._call_ends = deadline
        try:
            return same_arguments(begun.arguments, waiting.arguments)
        except RuntimeError:  # another thread changes them at this very moment
            return False

    def deliver(self, index: int, result: CallResult) -> None:
        """The call has ended, and that is on disk or known to be unknown."""
        waiting = self.open
        if waiting is not None and waiting.index == index and not waiting.end.done():
            waiting.end.set_result(result)

    def report(self, report: CallReport) -> None:
        """What the ledger says of the open call now."""
        waiting = self.open
        if waiting is None or waiting.index != report.index or waiting.in_flight:
            return
        if report.status in OPEN:
            waiting.asks_person = report.status is CallStatus.WAITING_FOR_APPROVAL
        elif not waiting.end.done():
            waiting.end.set_result(_result(waiting.call, report))

    async def _call(self, tool: str, arguments: object) -> CallResult:
        try:
            async with self._one_call:
                return _checked(await self._to_its_end(tool, arguments))
        except asyncio.CancelledError:
            if self.stopped is not None:
                raise self.stopped from None
            raise

    async def _to_its_end(self, tool: str, arguments: object) -> CallResult:
        self._require_going()
        call = self._desk.prepare(tool, arguments, self._ordinal)
        asked_at = time.monotonic()
        report = await self._desk.propose(self, call)
        self._ordinal += 1
        self._clock(report, asked_at)
        if report.status not in OPEN:
            return _result(call, report)
        asks = report.status is CallStatus.WAITING_FOR_APPROVAL
        self.open = OpenCall(report.index, call, arguments, asyncio.get_running_loop().create_future(), asks)
        try:
            self._desk.opened(self)
            return await self.open.end
        finally:
            self.open, self._call_ends = None, 0.0
            self._clock_runs()
            self._desk.opened(self)

    def _require_going(self) -> None:
        if self.stopped is not None:
            raise self.stopped

    def _clock(self, report: CallReport, asked_at: float) -> None:
        if report.status is CallStatus.WAITING_FOR_APPROVAL:
            self._session_left = report.session_left / 1000
        else:
            self._session_ends = asked_at + report.session_left / 1000

    def _clock_runs(self) -> None:
        if self._session_left is not None:
            self._session_ends = time.monotonic() + self._session_left
            self._session_left = None

    def _called(self, work: asyncio.Task[CallResult]) -> None:
        self._calls.discard(work)
        if not work.cancelled():
            # Taken note of: whoever asked for the call may have given up the wait.
            work.exception()


def _result(call: HandlerCall, report: CallReport) -> CallResult:
    return CallResult(
        tool=call.tool,
        mutation_id=call.mutation_id,
        status=report.status,
        result=report.result,
        outcome=report.record,
        refusal=report.refusal,
        reason=report.record.get("reason") if report.record else None,
    )


def _checked(result: CallResult) -> CallResult:
    """The result, or the refusal it stands for as an exception."""
    match result.status:
        case CallStatus.REFUSED:
            raise CallRefused(result.refusal or "refused", result)
        case CallStatus.DENIED:
            raise CallDenied("denied", result)
        case CallStatus.EXPIRED:
            raise CallExpired("expired", result)
        case CallStatus.CANCELLED | CallStatus.SKIPPED:
            raise RunCancelled("the call was cancelled")
        case _:
            return result
