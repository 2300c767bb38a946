"""Hearing that something may have happened in a run: hints only, so whoever waits also looks every second."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager

from ledger.run_hints import RunHints
from ledger.store import StoreSettings
from ledger.store.hints import HintListener


class Hint:
    """An event of one loop for one waiter, whose wait is bounded: a future and a timer, where `asyncio.timeout` around
    an `asyncio.Event` would cost each delivery several times that."""

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Lets the waiter go on, now or when it comes to wait."""
        self._is_set = True
        _end(self._waiting)

    def clear(self) -> None:
        """What was heard is being looked at."""
        self._is_set = False

    async def wait(self, seconds: float) -> None:
        """Returns when it is set, or after `seconds`."""
        if self._is_set:
            return
        loop = asyncio.get_running_loop()
        waiting = self._waiting = loop.create_future()
        timer = loop.call_later(seconds, _end, waiting)
        try:
            await waiting
        finally:
            timer.cancel()
            self._waiting = None


def _end(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


class JournalHints:
    """One subscriber for all shards of a loop. A waiter registers first, then reads, and reads again on a hint."""

    def __init__(self, settings: StoreSettings) -> None:
        self._runs = RunHints(Hint)
        channels = [f"ml:{{{shard:02x}}}:journal-signal" for shard in range(settings.redis.shards)]
        self._listener = HintListener(
            settings,
            channels,
            heard=lambda _channel, data: self._runs.heard(data),
            reconnected=self._runs.all_again,
        )

    def start(self) -> None:
        """Begins to listen in the running loop."""
        self._listener.start()

    async def close(self) -> None:
        """Stops listening."""
        await self._listener.close()

    def watch(self, run_id: str) -> AbstractContextManager[Hint]:
        """An event that is set whenever something may have happened in the run; the waiter clears it."""
        return self._runs.watch(run_id)

    def watch_end(self, run_id: str) -> AbstractContextManager[Hint]:
        """The same for the run's end alone, also when that was heard of shortly before."""
        return self._runs.watch_end(run_id)
