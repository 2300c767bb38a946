"""Handing in deliveries from an event loop and waiting for their ends: what a host `Engine` does without HTTP.

Admissions of a tick share a batch. A waiter registers first, then reads, and reads again on a hint, after the
subscriber connected anew, and every second; it answers only from what it read in the store (architecture, step 8).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ledger.admission import AdmissionLimits, Admitted, Delivery, admit_delivery
from ledger.errors import Refused, StoreUnavailable, StoreUnsafe
from ledger.ids import shard_of_id
from ledger.records import Run
from ledger.runs import read_run
from ledger.store import AsyncStore
from ledger.store.hints import HintListener
from ledger.wake import Waker

TICK_SECONDS = 1.0
REMEMBERED_ENDS = 8192
"""Ends heard of before anybody waited for them; a forgotten one costs its waiter a second."""


class Submitter:
    """Admits deliveries and waits for their runs, in one event loop. `start` before use, `close` after it."""

    def __init__(self, store: AsyncStore, waker: Waker, limits: AdmissionLimits) -> None:
        self._store = store
        self._waker = waker
        self._limits = limits
        self._shards = store.settings.redis.shards
        self._waiters: dict[bytes, set[asyncio.Future[None]]] = {}
        self._ended: dict[bytes, None] = {}
        channels = [f"ml:{{{shard:02x}}}:journal-signal" for shard in range(self._shards)]
        self._hints = HintListener(store.settings, channels, heard=self._heard, reconnected=self._all_again)

    async def start(self) -> None:
        """Subscribes to the journals' hints; waiting works without them too, only slower."""
        self._hints.start()

    async def close(self) -> None:
        """Ends the subscriber. Waiters go on by reading every second."""
        await self._hints.close()

    async def submit(self, delivery: Delivery) -> Admitted:
        """Admits one delivery, confirmed on disk; raises what `admit_delivery` lists and what the store raises.

        An admission that was not confirmed is sent once more as it is (C-22).
        """
        call = admit_delivery(delivery, self._limits, self._shards)
        try:
            admitted = await self._store.run(call)
        except StoreUnavailable as error:
            if not error.extra.get("sent"):
                raise
            admitted = await self._store.run(call)
        if admitted.wake:
            await asyncio.to_thread(self._waker.wake)
        return admitted

    async def ended(self, run: Run, seconds: float) -> Run:
        """The run as read last: ended, or as it was when `seconds` were over. A store that is away is waited for."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        shard = shard_of_id(run.run_id, self._shards) or 0
        key = run.run_id.encode()
        # What admission answered was read from the store, so nothing is read before something was heard.
        while not run.status.ended and (left := end - loop.time()) > 0:
            await self._hear(key, min(TICK_SECONDS, left))
            with suppress(StoreUnavailable, StoreUnsafe):
                run = await self._read(shard, run)
        return run

    async def _read(self, shard: int, run: Run) -> Run:
        reply = await self._store.run(read_run(shard, run.run_id, run.tenant))
        if reply.wake:
            await asyncio.to_thread(self._waker.wake)
        if reply.run is None:
            raise Refused("no such run", code="not_found")
        return reply.run

    async def _hear(self, key: bytes, seconds: float) -> None:
        """Returns when the run's end was heard of, the subscriber connected anew, or `seconds` are over."""
        if key in self._ended:
            del self._ended[key]
            return
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        mine = self._waiters.setdefault(key, set())
        mine.add(told)
        try:
            await asyncio.wait([told], timeout=seconds)
        finally:
            mine.discard(told)
            if not mine:
                self._waiters.pop(key, None)

    def _heard(self, _channel: bytes, data: bytes) -> None:
        key, _, rest = data.partition(b" ")
        if not rest.endswith(b" end"):
            return
        waiting = self._waiters.get(key)
        if waiting is not None:
            _tell(waiting)
            return
        self._ended[key] = None
        if len(self._ended) > REMEMBERED_ENDS:
            del self._ended[next(iter(self._ended))]

    def _all_again(self) -> None:
        for waiting in self._waiters.values():
            _tell(waiting)


def _tell(waiting: set[asyncio.Future[None]]) -> None:
    for told in waiting:
        if not told.done():
            told.set_result(None)
