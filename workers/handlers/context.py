"""What a turn handler gets: the delivery, its deadlines, and an executor for calls (contract, section 16)."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any, Protocol

from workers.handlers.results import CallResult, OwnerLost
from workers.tools.results import IncomingMessage


class RunningTurn(Protocol):
    """The live run behind a context."""

    @property
    def deadline_monotonic(self) -> float:
        """The live deadline."""

    @property
    def stopped(self) -> Exception | None:
        """Why the run goes no further, or None."""

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallResult:
        """Asks for a call and waits for its end."""


class AsyncExecutor:
    """Calls tools for an async handler."""

    __slots__ = ("_turn",)

    def __init__(self, turn: RunningTurn) -> None:
        self._turn = turn

    @property
    def deadline_monotonic(self) -> float:
        """Until when work may go on, in seconds of `time.monotonic`.

        It stands still while a person is asked, includes an allowance that an approval gave, and never passes the
        request ceiling (C-50 to C-52).
        """
        return self._turn.deadline_monotonic

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallResult:
        """Asks for one call, waits for approval where that is needed, and for its durable end (C-25).

        Calls of one run are made one after the other, in the order they were asked for. Giving up the wait does not
        take the call back.

        Raises:
            InvalidRequest: the arguments are not a JSON object that C-02 accepts; nothing was asked for.
            CallRefused, CallDenied, CallExpired: nothing was executed.
            HandlerStopped: the run was cancelled, is past its ceiling, or is no longer this worker's.
        """
        return await self._turn.call(tool, arguments)


class SyncExecutor:
    """Calls tools for a sync handler, from any thread of it."""

    __slots__ = ("_loop", "_turn")

    def __init__(self, turn: RunningTurn, loop: asyncio.AbstractEventLoop) -> None:
        self._turn = turn
        self._loop = loop

    @property
    def deadline_monotonic(self) -> float:
        """As `AsyncExecutor.deadline_monotonic`."""
        return self._turn.deadline_monotonic

    def call(self, tool: str, arguments: dict[str, Any]) -> CallResult:
        """As `AsyncExecutor.call`; blocks the thread meanwhile."""
        work = self._turn.call(tool, arguments)
        try:
            waiting = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise OwnerLost("the worker has stopped") from None
        try:
            return waiting.result()
        except concurrent.futures.CancelledError:
            raise OwnerLost("the worker stops") from None


class HandlerContext:
    """One run of a turn handler. `input` is the delivery's own JSON value, numbers exact.

    `deadline_monotonic` is a snapshot from the start; `executor.deadline_monotonic` is live.
    `request_deadline_monotonic` is the fixed ceiling. All are seconds of `time.monotonic`.
    """

    __slots__ = (
        "_turn",
        "deadline_monotonic",
        "executor",
        "input",
        "message",
        "request_deadline_monotonic",
        "text",
    )

    def __init__(
        self,
        turn: RunningTurn,
        message: IncomingMessage,
        value: Any,
        executor: AsyncExecutor | SyncExecutor,
        ceiling: float,
    ) -> None:
        self._turn = turn
        self.message = message
        self.text = message.text
        self.input = value
        self.executor = executor
        self.deadline_monotonic = turn.deadline_monotonic
        self.request_deadline_monotonic = ceiling

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants the result any more. Safe to ask from any thread; a sync handler should."""
        return self._turn.stopped is not None
