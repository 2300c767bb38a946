"""What this process knows of the store: its id and the highest confirmed counter of each shard (C-27)."""

from __future__ import annotations

import threading
from typing import Any

from ledger.store.call import ScriptCall
from ledger.store.wire import seq_key


class LedgerView:
    """Store ids and confirmed counters, one per shard; shared by all connections of a process."""

    def __init__(self, shards: int) -> None:
        self.ids: list[bytes] = [b""] * shards
        self.seen: list[int] = [0] * shards
        self._lock = threading.Lock()

    def arguments(self, call: ScriptCall[Any]) -> list[bytes | str | int]:
        """The command of a call, as this process must send it now; the store id is item 4."""
        shard = call.shard
        head: list[bytes | str | int] = [*call.script.command, 1, seq_key(shard)]
        with self._lock:
            return [*head, self.ids[shard], self.seen[shard], *call.args]

    def confirmed(self, shard: int, n: int, store_id: bytes) -> None:
        """Notes a counter confirmed to a call that was sent under `store_id`; only the highest counts.

        An answer that was on its way while a person accepted the store says nothing about the accepted one: its
        counter, held against the new store, would refuse that for good.
        """
        if n > self.seen[shard]:
            with self._lock:
                if self.ids[shard] == store_id:
                    self.seen[shard] = max(self.seen[shard], n)

    def adopt(self, shard: int, store_id: bytes, n: int = 0) -> None:
        """Takes over the id of a store that was accepted by a person; what is known of that id stays known."""
        with self._lock:
            known = self.seen[shard] if self.ids[shard] == store_id else 0
            self.ids[shard], self.seen[shard] = store_id, max(known, n)
