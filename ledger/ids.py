"""Ids the ledger makes: opaque to callers, but the first two hex characters name the shard."""

from __future__ import annotations

import re
import secrets

_SHARDED = re.compile(r"[0-9a-f]{34}\Z")


def shard_of_session(sid: str, shards: int) -> int:
    """The shard that holds a session, from its hash (32 hex)."""
    return int(sid[:8], 16) % shards


def new_id(shard: int) -> str:
    """A run, approval or other id: `<2-hex shard><random 128 bit>`."""
    return f"{shard:02x}{secrets.token_hex(16)}"


def new_token() -> str:
    """What a request is known again by when it is sent twice (C-22)."""
    return secrets.token_hex(8)


def shard_of_id(value: str, shards: int) -> int | None:
    """The shard an id points to, or None when it cannot be one of ours (answered as unknown)."""
    if not _SHARDED.match(value):
        return None
    shard = int(value[:2], 16)
    return shard if shard < shards else None
