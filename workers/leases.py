"""Keeping leases and hearing news of owned sessions (C-30, C-31)."""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress

from ledger.errors import LedgerError
from ledger.faultpoints import reach
from ledger.ownership import renew_leases
from workers.complaints import Complaints
from workers.owner import SessionOwner, Shared


class LeaseKeeper:
    """Renews every lease that is older than the renewal interval, and asks at once for sessions with news."""

    def __init__(self, shared: Shared, owners: Mapping[str, SessionOwner]) -> None:
        self._shared = shared
        self._owners = owners
        self._news: set[str] = set()
        self._wake = asyncio.Event()
        self._complaints = Complaints("renewal_failed")

    def news(self, sid: str) -> None:
        """A signal named this session: a decision, a cancel, a new run."""
        if sid in self._owners:
            self._owners[sid].heard()
            self._news.add(sid)
            self._wake.set()

    def ask_all(self) -> None:
        """The signal connection was lost for a while: ask for every session (C-31)."""
        self._news.update(self._owners)
        self._wake.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        interval = self._shared.settings.renew_every
        # A time of its own: news of some sessions must never put off the renewal of all.
        everybody_at = time.monotonic() + interval
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(everybody_at - time.monotonic()):
                    await self._wake.wait()
            self._wake.clear()
            urgent, self._news = self._news, set()
            now = time.monotonic()
            # A lease that is still young needs nothing yet: a short mutation never pays for a renewal.
            young = now - interval / 2 if now >= everybody_at else -math.inf
            if now >= everybody_at:
                everybody_at = now + interval
            await self._renew(
                owner for owner in list(self._owners.values()) if owner.sid in urgent or owner.lease_from < young
            )

    async def _renew(self, owners: Iterable[SessionOwner]) -> None:
        by_shard: dict[int, list[SessionOwner]] = defaultdict(list)
        for owner in owners:
            by_shard[owner.shard].append(owner)
        await asyncio.gather(*(self._renew_shard(shard, held) for shard, held in by_shard.items()))

    async def _renew_shard(self, shard: int, owners: list[SessionOwner]) -> None:
        # Counted from before the renewal leaves: the store cannot have granted less (C-53).
        sent_at = time.monotonic()
        rows = [(owner.sid, owner.token) for owner in owners]
        reach("renew.asked")
        try:
            answers = await self._shared.store.run(renew_leases(shard, rows, self._shared.settings.lease_ms))
        except LedgerError as error:
            self._complaints.note(error.code)
            return
        reach("renew.confirmed")
        for owner, answer in zip(owners, answers, strict=True):
            if not answer.held:
                owner.lose()
                continue
            owner.lease_from = max(owner.lease_from, sent_at)
            if answer.cancelled_step:
                owner.cancel_asked(answer.cancelled_step)
            if answer.news is not None:
                owner.heard(answer.news)
