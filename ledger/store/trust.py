"""Whether a server met anew still holds what this process knows to be confirmed (C-27). No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from redis.exceptions import ResponseError

from ledger.store.scripts import SCRIPTS
from ledger.store.view import LedgerView
from ledger.store.wire import StoreChanged, seq_key, translate

TRUST_SECONDS = 2.0
"""How long a worker sends no call after it met another life of a server: so long others have to say what they miss."""


def check_commands(view: LedgerView, shards: Iterable[int], *, refuse: bool = False) -> list[list[bytes | str | int]]:
    """One look at each shard under what this process knows; `refuse` stops those that lack nothing themselves."""
    source = SCRIPTS["check_shard"].source
    return [["EVAL", source, 1, seq_key(shard), view.ids[shard], view.seen[shard], int(refuse)] for shard in shards]


def require_kept(replies: Sequence[Any]) -> None:
    """Raises StoreWentBack if any shard lacks confirmed writes, StoreError for what cannot be told."""
    for reply in replies:
        error = translate(reply) if isinstance(reply, ResponseError) else None
        # A store that a person accepted is adopted by the next call.
        if error is not None and not isinstance(error, StoreChanged):
            raise error
