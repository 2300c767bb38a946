"""Plain clients to the primaries behind a store URL: one server, Sentinel's choice, a cluster's masters."""

from __future__ import annotations

import redis

from ledger.config import RedisConfig
from ledger.store import StoreSettings
from ledger.store.dialing import place, plain_redis


def open_primaries(url: str, *, timeout: float = 5.0) -> list[tuple[str, redis.Redis]]:
    """`(name, client)` for each primary; the caller closes the clients.

    Names never hold credentials. Raises StoreUnavailable, ConfigError.
    """
    settings = StoreSettings(RedisConfig(url=url), connect_seconds=timeout)
    nodes = dict.fromkeys(node for _, _, node in place(settings).ranges)
    limits = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    return [(f"{node[0]}:{node[1]}" if node else "store", plain_redis(settings, node, **limits)) for node in nodes]
