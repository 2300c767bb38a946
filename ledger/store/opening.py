"""What happens once per process and per server life: settings verified, store id and shard count agreed."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from ledger.config import RedisConfig
from ledger.errors import ConfigError, StoreWentBack
from ledger.store.scripts import SCRIPTS
from ledger.store.view import LedgerView
from ledger.store.wire import seq_key

LAYOUT = 1
"""Of the store's keys as a whole; each packed record has a format byte of its own (`codec`)."""


def init_command(view: LedgerView, shard: int) -> list[bytes | str | int]:
    """`init_shard` of one shard; shard 0 decides the store id, so it is adopted alone first."""
    candidate = view.ids[0] or secrets.token_hex(16).encode()
    return ["EVAL", SCRIPTS["init_shard"].source, 1, seq_key(shard), candidate, len(view.ids)]


def adopt_first(view: LedgerView, reply: Sequence[Any], redis: RedisConfig) -> None:
    """Takes the store id that shard 0 holds.

    Raises:
        ConfigError: the store was made with another number of shards, or by a newer version (`format_too_new`).
    """
    store_id, _, _, shards, layout = reply
    require_layout(layout)
    if shards != redis.shards:
        raise ConfigError(
            f"redis.shards is {redis.shards}, but this store was made with {shards}: set shards = {shards}"
        )
    view.adopt(0, store_id)


def adopt_all(view: LedgerView, replies: Sequence[Sequence[Any]]) -> None:
    """Takes each shard's id and counter.

    Raises:
        StoreWentBack: a shard is refused, or shards disagree about the store (C-27).
    """
    for shard, (store_id, n, refused, *_) in enumerate(replies):
        if refused or store_id != replies[0][0]:
            raise StoreWentBack("the store lost confirmed writes: check it, then run `mutation-ledger store accept`")
        view.adopt(shard, store_id, n)


def require_layout(layout: int) -> None:
    """Raises ConfigError (format_too_new) for a store whose keys a newer version laid out."""
    if layout > LAYOUT:
        message = "a newer version of mutation-ledger made this store: update this process"
        raise ConfigError(message, code="format_too_new")
