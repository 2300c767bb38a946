"""Hearing that something may have happened in a run: hints only, so whoever waits also looks every second."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, suppress

from ledger.run_hints import RunHints
from ledger.store import StoreSettings
from ledger.store.hints import HintListener


class JournalHints:
    """One subscriber for all shards of a loop. A waiter registers first, then reads, and reads again on a hint."""

    def __init__(self, settings: StoreSettings) -> None:
        self._runs = RunHints(asyncio.Event)
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

    def watch(self, run_id: str) -> AbstractContextManager[asyncio.Event]:
        """An event that is set whenever something may have happened in the run; the waiter clears it."""
        return self._runs.watch(run_id)

    def watch_end(self, run_id: str) -> AbstractContextManager[asyncio.Event]:
        """The same for the run's end alone, also when that was heard of shortly before."""
        return self._runs.watch_end(run_id)


async def heard(hint: asyncio.Event, seconds: float) -> None:
    """Waits for the hint, at most `seconds`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await hint.wait()
