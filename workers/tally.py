"""How this worker's attempts end, counted in memory and added to the store's counters now and then (`/metrics`)."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter

import structlog

from ledger.counts import ATTEMPTS, add_counts
from ledger.errors import LedgerError
from ledger.store import AsyncStore
from workers.tools.results import Verdict

log = structlog.get_logger(__name__)

REPORT_SECONDS = 5.0


class Tally:
    """A worker that is killed takes at most `REPORT_SECONDS` of counts along; the ledger itself loses nothing."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._process = secrets.token_hex(8)
        self._number = 1
        # What is on its way stays as it is until it is confirmed, so that it may be sent again (C-22).
        self._sent: dict[str, int] = {}

    def attempt(self, verdict: Verdict) -> None:
        """One attempt has ended."""
        self._counts[verdict] += 1

    async def run(self, store: AsyncStore) -> None:
        """Reports until cancelled, and once more then."""
        try:
            while True:
                await asyncio.sleep(REPORT_SECONDS)
                await self.report(store)
        finally:
            await self.report(store)

    async def report(self, store: AsyncStore) -> None:
        """Adds what was counted since the last report."""
        if not self._sent:
            self._sent = {f"{ATTEMPTS}:{name}": count for name, count in self._counts.items()}
            self._counts.clear()
        if not self._sent:
            return
        try:
            await store.run(add_counts(self._process, self._number, self._sent))
        except LedgerError as error:
            log.info("counts_not_added", code=error.code)
            return
        self._number += 1
        self._sent = {}
