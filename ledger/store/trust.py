"""Whether a server met anew still holds what this process knows to be confirmed (C-27). No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from redis.exceptions import ResponseError

from ledger.errors import StoreWentBack
from ledger.store.scripts import SCRIPTS
from ledger.store.view import LedgerView
from ledger.store.wire import StoreChanged, seq_key, translate

TRUST_SECONDS = 2.0
"""How long a worker sends no call after it met another life of a server: so long others have to say what they miss."""


def check_commands(view: LedgerView, shards: Iterable[int]) -> list[list[bytes | str | int]]:
    """One look at each shard under what this process knows."""
    return [_check(view, shard, view.ids[shard], refuse=0) for shard in shards]


def refuse_commands(view: LedgerView, shards: Iterable[int], store_id: bytes) -> list[list[bytes | str | int]]:
    """Refuses the shards that still have this id.

    Not the id that this process has of each by now: a person may be accepting them, one after the other, and what was
    accepted must not be refused again for a shard that was not yet.
    """
    return [_check(view, shard, store_id, refuse=1) for shard in shards]


def _check(view: LedgerView, shard: int, store_id: bytes, *, refuse: int) -> list[bytes | str | int]:
    return ["EVAL", SCRIPTS["check_shard"].source, 1, seq_key(shard), store_id, view.seen[shard], refuse]


def require_kept(commands: Sequence[Sequence[Any]], replies: Sequence[Any]) -> None:
    """Raises StoreWentBack if any shard lacks confirmed writes, StoreError for what cannot be told."""
    for command, reply in zip(commands, replies, strict=True):
        error = translate(reply) if isinstance(reply, ResponseError) else None
        if isinstance(error, StoreWentBack):
            error.store_id = command[4]
        # A store that a person accepted is adopted by the next call.
        if error is not None and not isinstance(error, StoreChanged):
            raise error
