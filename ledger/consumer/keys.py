"""The store's keys that a consumer reads; `ledger/lua/lib/keys.lua` builds the same names."""

from __future__ import annotations

SESSIONS_PATTERN = "ml:{*}:sessions:*"


def outcomes_key(shard: int) -> str:
    """The stream of published outcomes (public, C-111)."""
    return f"ml:{{{shard:02x}}}:outcomes"


def floor_key(shard: int) -> str:
    """The highest stream id that was trimmed; absent while nothing was (public, C-111)."""
    return f"ml:{{{shard:02x}}}:outcomes:floor"


def sessions_key(shard: int, tenant: str) -> str:
    """The index of a tenant's sessions: a zset of session hashes."""
    return f"ml:{{{shard:02x}}}:sessions:{tenant}"


def shard_and_tenant(key: bytes) -> tuple[int, str]:
    """What a `sessions_key` was made of."""
    prefix, _, tenant = key.decode().partition(":sessions:")
    return int(prefix[4:6], 16), tenant
