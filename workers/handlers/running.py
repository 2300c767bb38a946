"""Running a handler's function, in the loop or in a thread, and ending its run with what came of it (C-25, C-50)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from ledger.errors import LedgerError, Refused, StoreError
from ledger.faultpoints import reach
from ledger.handlers import HandlerStart, end_handler
from ledger.plugins import TurnHandler
from workers.handlers.context import AsyncExecutor, HandlerContext, SyncExecutor
from workers.handlers.host import HandlerHost
from workers.handlers.live import LiveHandler
from workers.handlers.narration import narration_json
from workers.handlers.results import CallRefused, CeilingReached, HandlerStopped, OwnerLost
from workers.retrying import landed
from workers.tools.results import IncomingMessage

if TYPE_CHECKING:
    from workers.handlers.session import SessionHandlers

log = structlog.get_logger(__name__)

HANDLER_FAILED = "handler_failed"
UNKNOWN_HANDLER = "unknown_handler"
RETRY_SECONDS = 0.05
LOST_SECONDS = 0.1
_STOPS = (HandlerStopped, asyncio.CancelledError)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a handler ended: `narration` as JSON text, or None with the `code` the run fails with."""

    narration: str | None = None
    code: str | None = None


class HandlerRunner:
    """Runs one live handler to its end."""

    def __init__(self, live: LiveHandler, session: SessionHandlers, host: HandlerHost) -> None:
        self._live = live
        self._session = session
        self._host = host
        self._task: asyncio.Task[None] | None = None

    def start(self, start: HandlerStart) -> None:
        """Begins; the run is ended and the session told when it is over."""
        self._task = asyncio.create_task(self._run(start))

    async def _run(self, start: HandlerStart) -> None:
        live = self._live
        loop = asyncio.get_running_loop()
        ceiling = loop.call_later(max(0.0, live.ceiling - loop.time()), live.stop, CeilingReached("the ceiling"))
        try:
            outcome = await self._outcome(start)
            await live.quiet()
            if not isinstance(live.stopped, OwnerLost):
                await self._end(outcome)
        except Exception as error:  # one handler must not end the worker; its session's lease or stop ends the run
            log.error("handler_path_failed", error=type(error).__name__, run_id=live.run_id)
        finally:
            ceiling.cancel()
            self._session.ended(live)

    async def _outcome(self, start: HandlerStart) -> Outcome:
        handler = self._host.handlers.get(start.handler)
        if handler is None:
            self._host.places.leave(start.handler)
            return Outcome(code=UNKNOWN_HANDLER)
        try:
            work = await self._enter(handler, start)
        except BaseException:
            self._host.places.leave(start.handler)
            raise
        await asyncio.wait({work, self._live.halted}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            # Another owner may run it by now; otherwise there is time to put things in order (C-55).
            lost = isinstance(self._live.stopped, OwnerLost)
            if not lost:
                await self._live.call_ended()
            await asyncio.wait({work}, timeout=LOST_SECONDS if lost else self._host.drain_seconds)
        if not work.done():
            # A thread cannot be stopped: it keeps its place until it ends by itself.
            work.cancel()
            await asyncio.wait({work}, timeout=self._host.drain_seconds)
        return self._judge(work)

    async def _enter(self, handler: TurnHandler, start: HandlerStart) -> asyncio.Future[Any]:
        live = self._live
        text, value = start.parsed_input()
        message = IncomingMessage(
            start.session_id, start.agent, start.user, start.delivery_id, start.logical_turn_id, text
        )
        if handler.asynchronous:
            context = HandlerContext(live, message, value, AsyncExecutor(live), live.ceiling)
            work = asyncio.ensure_future(_as_coroutine(handler, context))
            work.add_done_callback(lambda _: self._host.places.leave(live.name))
            return work
        loop = asyncio.get_running_loop()
        context = HandlerContext(live, message, value, SyncExecutor(live, loop), live.ceiling)
        await self._host.pool.slots.acquire()
        return self._host.pool.submit(lambda: _in_thread(handler, context, loop, self._leave))

    def _leave(self) -> None:
        self._host.places.leave(self._live.name)

    def _judge(self, work: asyncio.Future[Any]) -> Outcome:
        stopped = self._live.stopped
        result = work.result() if work.done() and not work.cancelled() else _Raised(asyncio.CancelledError())
        if not isinstance(result, _Raised) and not (stopped and stopped.binding):
            return Outcome(narration=narration_json(result))
        error = result.error if isinstance(result, _Raised) else stopped
        if stopped is not None and (stopped.binding or isinstance(error, _STOPS)):
            return Outcome(code=stopped.code)
        log.warning("handler_failed", handler=self._live.name, error=type(error).__name__, run_id=self._live.run_id)
        return Outcome(code=error.code if isinstance(error, (CallRefused, LedgerError)) else HANDLER_FAILED)

    async def _end(self, outcome: Outcome) -> None:
        live, session = self._live, self._session
        script = end_handler(
            session.shard,
            session.sid,
            session.token,
            live.run_id,
            failed=outcome.narration is None,
            code=outcome.code,
            narration=outcome.narration,
        )
        while not isinstance(live.stopped, OwnerLost):
            await session.landing(live.run_id)
            reach("end.asked")
            try:
                ended = await landed(session.worker, script)
            except Refused as error:
                if error.code != "call_in_flight":
                    return
                # Begun in the very moment the handler gave it up; its settlement comes first (C-24).
                await asyncio.sleep(RETRY_SECONDS)
            except StoreError as error:
                log.error("handler_end_failed", code=error.code, run_id=live.run_id)
                return
            else:
                reach("end.confirmed")
                if ended.how == "over":
                    log.info("handler_run_was_over", status=ended.status, run_id=live.run_id)
                return


@dataclass(frozen=True, slots=True)
class _Raised:
    error: BaseException


async def _as_coroutine(handler: TurnHandler, context: HandlerContext) -> Any:
    try:
        return await handler.function(context)
    except (Exception, SystemExit) as error:  # a handler must not end the worker
        return _Raised(error)


def _in_thread(
    handler: TurnHandler, context: HandlerContext, loop: asyncio.AbstractEventLoop, leave: Callable[[], None]
) -> Any:
    try:
        return handler.function(context)
    except BaseException as error:  # a handler must not end the worker
        return _Raised(error)
    finally:
        with contextlib.suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(leave)
