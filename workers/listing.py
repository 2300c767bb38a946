"""Telling front doors and engines what this worker's MCP servers list (C-64)."""

from __future__ import annotations

import asyncio
import itertools

import structlog

from ledger.catalogs import LIST_SECONDS, Listing, share_catalogs
from ledger.errors import LedgerError
from ledger.store import AsyncStore
from workers.tools.router import ToolRouter

log = structlog.get_logger(__name__)

RELIST_EVERY = 6
"""After so many times the servers are asked anew."""


class CatalogSharing:
    """Says again and again what is listed; silence means that nothing is known."""

    def __init__(self, store: AsyncStore, router: ToolRouter) -> None:
        self._store = store
        self._router = router

    async def run(self) -> None:
        """Runs until cancelled."""
        for turn in itertools.count(1):
            await self._share()
            await asyncio.sleep(LIST_SECONDS)
            if turn % RELIST_EVERY == 0:
                await self._router.relist()

    async def _share(self) -> None:
        made = [Listing.of(server, catalog) for server, catalog in self._router.listed().items()]
        listings = [one for one in made if one is not None]
        if not listings:
            return
        try:
            missing = await self._store.run(share_catalogs(listings))
            if missing:
                await self._store.run(share_catalogs(listings, missing))
        except LedgerError as error:
            log.debug("catalogs_not_shared", code=error.code)
