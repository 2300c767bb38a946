"""What the parts of an engine share, all in one event loop."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TypeVar

from ledger.config import Config
from ledger.engine.hearing import JournalHints
from ledger.errors import StoreUnavailable
from ledger.proposing import Proposer
from ledger.store import AsyncStore, ScriptCall
from ledger.storetime import StoreTime, store_time
from ledger.wake import Waker

T = TypeVar("T")


class StoreClock:
    """Readings of the store's time, taken anew when the last one is too old (C-50)."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._last: StoreTime | None = None

    async def reading(self) -> StoreTime:
        """A reading that may be used now. Raises what the store raises."""
        if self._last is None or not self._last.fresh:
            before = time.monotonic()
            told = await self._store.run(store_time())
            self._last = StoreTime(told, before, time.monotonic())
        return self._last


@dataclass(slots=True)
class Deps:
    """`approvers` may decide through adapters; nobody else may (C-42)."""

    config: Config
    tenant: str
    principal: str
    agent: str
    approvers: frozenset[str]
    proposer: Proposer
    store: AsyncStore
    hints: JournalHints
    waker: Waker
    clock: StoreClock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = StoreClock(self.store)

    @property
    def shards(self) -> int:
        """The number of shards of the store."""
        return self.config.redis.shards

    async def write(self, call: ScriptCall[T]) -> T:
        """Runs a write; one that was not confirmed is sent once more as it is (C-22). Raises what the store raises."""
        try:
            return await self.store.run(call)
        except StoreUnavailable as error:
            if not error.extra.get("sent"):
                raise
            return await self.store.run(call)

    async def wake(self, wanted: bool) -> None:
        """Wakes a worker if a script's reply asked for it."""
        if wanted:
            await asyncio.to_thread(self.waker.wake)
