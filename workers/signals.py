"""Hearing hints: sessions that became ready, and news of owned ones. Never needed for correctness."""

from __future__ import annotations

from collections.abc import Callable

from ledger.store import StoreSettings
from ledger.store.hints import HintListener


class SignalListener:
    """Subscribes to `ml:{s}:signal` of all shards; asks for everything after a reconnect."""

    def __init__(
        self,
        settings: StoreSettings,
        *,
        ready: Callable[[int], None],
        news: Callable[[str], None],
        reconnected: Callable[[], None],
    ) -> None:
        self._channels = {f"ml:{{{shard:02x}}}:signal".encode(): shard for shard in range(settings.redis.shards)}
        self._ready = ready
        self._news = news
        names = [channel.decode() for channel in self._channels]
        self._hints = HintListener(settings, names, heard=self._heard, reconnected=reconnected)

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._hints.run()

    def _heard(self, channel: bytes, data: bytes) -> None:
        if data == b"r":
            self._ready(self._channels[channel])
        elif data.startswith(b"n"):
            # Anybody may publish anything here; a hint that makes no sense is none.
            self._news(data[1:].decode("ascii", "replace"))
