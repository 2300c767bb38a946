"""The retention sweep of one worker: expiry, erasure, trimming, and the AOF rewrite after erasures (C-81 to C-84)."""

from __future__ import annotations

import asyncio

import structlog

from ledger.erasure import RetentionReply, clear_dirty, sweep_retention
from ledger.errors import LedgerError
from workers.complaints import Complaints
from workers.owner import Shared

log = structlog.get_logger(__name__)

SWEEP_SECONDS = 1.0
PIECES_A_ROUND = 50
REWRITE_KEY = "ml:{00}:rewritten"


class Retention:
    """Sweeps every shard each second; pieces of one big erasure follow each other without a pause."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._complaints = Complaints("retention_failed")

    async def run(self) -> None:
        """Runs until cancelled. A store that is away is tried again every second."""
        shards = range(self._shared.store.settings.redis.shards)
        while not self._shared.stopping.is_set():
            marks = await asyncio.gather(*(self._sweep(shard) for shard in shards))
            dirty = {shard: mark for shard, mark in zip(shards, marks, strict=True) if mark}
            if dirty:
                await self._rewrite(dirty)
            await asyncio.sleep(SWEEP_SECONDS)

    async def _sweep(self, shard: int) -> int:
        settings = self._shared.settings
        dirty = 0
        for piece in range(PIECES_A_ROUND):
            call = sweep_retention(shard, settings.tombstone_ms, settings.stream_bound, interval_ms=1 if piece else 900)
            try:
                reply: RetentionReply = await self._shared.store.run(call)
            except LedgerError as error:
                self._complaints.note(error.code)
                return 0
            dirty = reply.dirty
            if reply.expired or reply.erased or reply.trimmed:
                log.info("retained", shard=shard, expired=reply.expired, erased=reply.erased, trimmed=reply.trimmed)
            if not reply.more:
                break
        return dirty

    async def _rewrite(self, dirty: dict[int, int]) -> None:
        """One rewrite covers all erasures before it; at most one per interval, whoever asks (C-84)."""
        store = self._shared.store
        every_ms = int(self._shared.settings.rewrite_every * 1000)
        try:
            if not await store.command("SET", REWRITE_KEY, "1", "NX", "PX", every_ms):
                return
            await store.each_server("BGREWRITEAOF")
            for shard, mark in dirty.items():
                await store.run(clear_dirty(shard, mark))
        except LedgerError as error:
            log.warning("rewrite_failed", code=error.code)
            return
        log.info("aof_rewrite_begun", shards=len(dirty))
