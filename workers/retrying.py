"""Sending an idempotent call again until it is confirmed or its time is over (C-22, C-24)."""

from __future__ import annotations

import asyncio
import time
from typing import TypeVar

from ledger.errors import StoreUnavailable, Unconfirmed
from ledger.store import AsyncStore, ScriptCall

T = TypeVar("T")
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0


async def confirmed(store: AsyncStore, call: ScriptCall[T], *, within: float) -> T:
    """Runs `call` until it is confirmed, at most `within` seconds. `within` may be infinite.

    Raises:
        StoreUnavailable: the time is over; the write may still land later.
        Refused, StoreWentBack: at once, another try would say the same.
    """
    give_up = time.monotonic() + within
    pause = FIRST_PAUSE
    while True:
        left = give_up - time.monotonic()
        try:
            async with asyncio.timeout(None if left == float("inf") else max(0.0, left)):
                return await store.run(call)
        except TimeoutError:
            raise Unconfirmed("the store did not confirm in time", sent=True) from None
        except StoreUnavailable:
            if time.monotonic() + pause >= give_up:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
