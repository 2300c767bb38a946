"""Sending an idempotent call again until it is confirmed or its time is over (C-22, C-24)."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol, TypeVar

import structlog

from ledger.errors import StoreUnavailable, StoreUnsafe, StoreWentBack, Unconfirmed
from ledger.store import AsyncStore, ScriptCall
from workers.settings import WorkerSettings

T = TypeVar("T")
log = structlog.get_logger(__name__)

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
NOT_NOW = (StoreUnavailable, StoreUnsafe)
"""The store cannot promise now; that ends by itself or when an operator puts a setting right (C-26)."""


class Landing(Protocol):
    """What `landed` needs of a worker's shared things."""

    store: AsyncStore
    settings: WorkerSettings
    unlanded: int


async def confirmed(store: AsyncStore, call: ScriptCall[T], *, within: float) -> T:
    """Runs `call` until it is confirmed, at most `within` seconds. `within` may be infinite.

    Raises:
        StoreUnavailable, StoreUnsafe: the time is over; the write may still land later.
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
        except NOT_NOW:
            if time.monotonic() + pause >= give_up:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


async def landed(shared: Landing, call: ScriptCall[T]) -> T:
    """Re-sends what must not be lost until it lands; from `settlement_wait` on it counts as unlanded (C-24).

    Raises:
        Refused: the ledger holds something else by now.
        StoreError: the record cannot be read by this version.
    """
    try:
        return await confirmed(shared.store, call, within=shared.settings.settlement_wait)
    except (*NOT_NOW, StoreWentBack) as error:
        log.warning("report_waits", code=error.code)
    shared.unlanded += 1
    try:
        while True:
            try:
                return await confirmed(shared.store, call, within=float("inf"))
            except StoreWentBack:
                # A person answers this one; the report is kept until then.
                await asyncio.sleep(LONGEST_PAUSE)
    finally:
        shared.unlanded -= 1
