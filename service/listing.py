"""Reading what MCP servers list, so that calls which cannot work are refused at once (C-64)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from ledger.catalogs import LIST_SECONDS, KnownCatalogs
from ledger.errors import LedgerError
from ledger.store import SyncStore

log = structlog.get_logger(__name__)


class CatalogWatch:
    """Reads in a thread of its own once started, which is in the process that serves, after any fork."""

    def __init__(self, store: Callable[[], SyncStore], known: KnownCatalogs, stopping: threading.Event) -> None:
        self._store = store
        self._known = known
        self._stopping = stopping

    def start(self) -> None:
        """Reads until the process stops."""
        threading.Thread(target=self._run, name="catalogs", daemon=True).start()

    def look(self) -> None:
        """Reads once. Raises what `SyncStore.run` raises."""
        self._known.adopt(self._store().run(self._known.request()))

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.look()
            except LedgerError as error:
                log.debug("catalogs_not_read", code=error.code)
            self._stopping.wait(LIST_SECONDS)
