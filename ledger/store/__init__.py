"""The one typed layer between the rules and Redis or Valkey: scripts, pinned connections, confirmed writes.

A caller builds a `ScriptCall` (modules `ledger.admission`, `ledger.attempts`, ...) and hands it to a `SyncStore`
(front door, command line) or an `AsyncStore` (worker). Both send a script and the `WAITAOF` after it on one pinned
connection, never re-send anything, and translate driver errors once (C-20, C-22).
"""

from ledger.store.aio import AsyncStore
from ledger.store.call import ScriptCall
from ledger.store.settings import StoreSettings
from ledger.store.sync import SyncStore

__all__ = ["AsyncStore", "ScriptCall", "StoreSettings", "SyncStore"]
