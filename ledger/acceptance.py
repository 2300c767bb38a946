"""A person accepts a store that lost confirmed writes: `mutation-ledger store accept` (C-27)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ledger.errors import ConfigError
from ledger.store import StoreSettings, SyncStore
from ledger.store.scripts import SCRIPTS
from ledger.store.wire import check_aof, seq_key

RUNS_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class StoreState:
    """What the counters say before anybody accepts. `known_ids` are all ids that processes may still send."""

    shards: int
    made: bool
    refused: tuple[int, ...]
    known_ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The new store id, the same in every shard, and how many live runs were ended."""

    store_id: str
    shards: int
    runs_ended: int


def read_state(settings: StoreSettings) -> StoreState:
    """What a store's shards say of themselves; changes nothing.

    Raises ConfigError if `redis.shards` is not the store's number, StoreUnavailable, StoreUnsafe.
    """
    store = SyncStore(settings)
    try:
        hashes = store.command([["HGETALL", seq_key(shard)] for shard in range(settings.redis.shards)])
    finally:
        store.close()
    return _state([_fields(reply) for reply in hashes], settings.redis.shards)


def accept_store(settings: StoreSettings, *, each: Callable[[int], None] | None = None) -> Accepted:
    """Gives every shard one new id, voids every approval given before and ends live runs (C-27).

    Started entries are published as unknown. `each` gets every shard's number once that shard is done. Stopped half
    way it is simply begun again. Raises Unconfirmed, StoreUnavailable, StoreUnsafe, ConfigError.
    """
    state = read_state(settings)
    store_id = secrets.token_hex(16)
    store = SyncStore(settings)
    ended = 0
    try:
        # Whether its writes are waited for depends on what its servers promise, so that is found out first.
        store.recheck()
        for shard in range(state.shards):
            ended += _accept_shard(store, shard, store_id, state)
            if each is not None:
                each(shard)
    finally:
        store.close()
    return Accepted(store_id, state.shards, ended)


def _accept_shard(store: SyncStore, shard: int, store_id: str, state: StoreState) -> int:
    """Accepts one shard, a bounded number of runs a call; how many it ended."""
    key = seq_key(shard)
    # An emptied shard knows neither its number of shards, which consumers ask for, nor the ids that running processes
    # will send: without those the next call of such a process would refuse the store again.
    retired = [field for known in sorted(state.known_ids) for field in (f"was:{known}", "1")]
    _confirmed(store, "HSET", key, "shards", state.shards, *retired)
    ended, more = 0, 1
    while more:
        accept = SCRIPTS["accept_shard"].source
        _, more, just_ended = _confirmed(store, "EVAL", accept, 1, key, store_id, RUNS_AT_ONCE)
        ended += just_ended
    return ended


def _confirmed(store: SyncStore, *command: bytes | str | int) -> Any:
    """One write, on disk before the answer counts (C-20)."""
    if not store.settings.waits_aof(store.report):
        return store.command([command])[0]
    reply, *_, aof = store.command([command, *store.settings.aof_commands()])
    short = check_aof(aof, store.settings.redis.aof_local, store.settings.redis.aof_replicas)
    if short is not None:
        raise short
    return reply


def _fields(reply: Any) -> dict[bytes, bytes]:
    """HGETALL answers a map or a flat list, as the connection's protocol has it."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def _state(hashes: list[dict[bytes, bytes]], configured: int) -> StoreState:
    stored = {int(fields[b"shards"]) for fields in hashes if b"shards" in fields}
    if stored and stored != {configured}:
        made_with = min(stored)
        raise ConfigError(
            f"redis.shards is {configured}, but this store was made with {made_with}: set shards = {made_with}"
        )
    known = {fields[name].decode() for fields in hashes for name in (b"store", b"refused") if name in fields}
    known |= {name[4:].decode() for fields in hashes for name in fields if name.startswith(b"was:")}
    refused = tuple(shard for shard, fields in enumerate(hashes) if b"refused" in fields)
    return StoreState(configured, bool(stored), refused, frozenset(known))
