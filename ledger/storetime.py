"""Store time and this process's monotonic time, turned into each other, rounding against the process (C-50)."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from ledger.store.call import ScriptCall

MAX_AGE_SECONDS = 10.0
"""Clocks drift: an older reading is not used."""


@dataclass(frozen=True, slots=True)
class StoreTime:
    """The store said `store_ms` at some moment between `before` and `after`, both of `time.monotonic`."""

    store_ms: int
    before: float
    after: float

    @property
    def fresh(self) -> bool:
        """Whether it may still be used."""
        return time.monotonic() - self.before <= MAX_AGE_SECONDS

    def monotonic(self, store_ms: int) -> float:
        """When, at the earliest, the store's clock shows `store_ms`."""
        return self.before + (store_ms - self.store_ms) / 1000

    def store(self, monotonic: float) -> int:
        """What the store's clock shows, at the least, at that moment."""
        return self.store_ms + math.floor((monotonic - self.after) * 1000)


def store_time(shard: int = 0) -> ScriptCall[int]:
    """The store's time, ms."""
    return ScriptCall.of("store_time", shard, decode=lambda reply: int(reply[1]), told=False)
