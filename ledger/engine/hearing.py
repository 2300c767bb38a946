"""Hearing that something may have happened in a run: hints only, so whoever waits also looks every second."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ledger.store import StoreSettings
from ledger.store.hints import HintListener


class JournalHints:
    """One subscriber for all shards of a loop. A waiter registers first, then reads, and reads again on a hint."""

    def __init__(self, settings: StoreSettings) -> None:
        self._waiters: dict[bytes, set[asyncio.Event]] = {}
        channels = [f"ml:{{{shard:02x}}}:journal-signal" for shard in range(settings.redis.shards)]
        self._listener = HintListener(settings, channels, heard=self._heard, reconnected=self._all_again)

    def start(self) -> None:
        """Begins to listen in the running loop."""
        self._listener.start()

    async def close(self) -> None:
        """Stops listening."""
        await self._listener.close()

    @contextmanager
    def watch(self, run_id: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever something may have happened in the run; the waiter clears it."""
        key, hint = run_id.encode(), asyncio.Event()
        self._waiters.setdefault(key, set()).add(hint)
        try:
            yield hint
        finally:
            mine = self._waiters[key]
            mine.discard(hint)
            if not mine:
                del self._waiters[key]

    def _heard(self, _channel: bytes, data: bytes) -> None:
        for hint in self._waiters.get(data.partition(b" ")[0], ()):
            hint.set()

    def _all_again(self) -> None:
        for hints in self._waiters.values():
            for hint in hints:
                hint.set()


async def heard(hint: asyncio.Event, seconds: float) -> None:
    """Waits for the hint, at most `seconds`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await hint.wait()
