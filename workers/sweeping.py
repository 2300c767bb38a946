"""The sweep of one worker: every second, each shard, whoever comes first (architecture, step 9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from ledger.errors import LedgerError
from ledger.faultpoints import reach
from ledger.ownership import SweepReply, sweep_shard
from ledger.wake import Waker
from workers.claiming import Claimer
from workers.complaints import Complaints
from workers.owner import Shared

log = structlog.get_logger(__name__)

SWEEP_SECONDS = 1.0


class Sweeper:
    """Finds ended leases, expired approvals, and ready sessions that nobody is awake for."""

    def __init__(self, shared: Shared, claimer: Claimer, waker: Waker) -> None:
        self._shared = shared
        self._claimer = claimer
        self._waker = waker
        self._complaints = Complaints("sweep_failed")

    async def run(self) -> None:
        """Runs until cancelled. A store that is away is tried again every second."""
        shards = range(self._shared.store.settings.redis.shards)
        while not self._shared.stopping.is_set():
            replies = await asyncio.gather(*(self._sweep(shard) for shard in shards))
            claim = [shard for shard, reply in zip(shards, replies, strict=True) if reply and reply.claim]
            if claim:
                await self._look(claim)
            await asyncio.sleep(SWEEP_SECONDS)

    async def _sweep(self, shard: int) -> SweepReply | None:
        reach("sweep.asked")
        try:
            reply = await self._shared.store.run(sweep_shard(shard, self._shared.settings.lease_ms))
        except LedgerError as error:
            self._complaints.note(error.code)
            return None
        if reply.reclaimed or reply.expired:
            reach("sweep.confirmed")
            log.info("swept", shard=shard, reclaimed=reply.reclaimed, expired=reply.expired)
        return reply

    async def _look(self, shards: list[int]) -> None:
        """The sweeper looks itself; only a full worker passes the work on by a job."""
        if self._claimer.is_full:
            wake: Callable[[], None] = self._waker.wake
            await asyncio.to_thread(wake)
            return
        self._claimer.switch_on()
        for shard in shards:
            self._claimer.hint(shard)
