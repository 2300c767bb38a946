"""A real Valkey that ships with the package, run on one data directory with a durable AOF."""

from __future__ import annotations

from ledger.embedded.address import find_url
from ledger.embedded.store import EmbeddedStore

__all__ = ["EmbeddedStore", "find_url"]
