"""Plain clients to the primaries behind a store URL: one server, Sentinel's choice, a cluster's masters."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from ledger.durability import plain_client
from ledger.errors import ConfigError, StoreUnavailable


def open_primaries(url: str, *, timeout: float = 5.0) -> list[tuple[str, redis.Redis]]:
    """`(name, client)` for each primary; the caller closes the clients.

    `redis+sentinel://[user:password@]host:port[,host:port]/service[/db]` asks Sentinel,
    `redis+cluster://host:port` asks any node. Names never hold credentials. Raises StoreUnavailable.
    """
    scheme = urlsplit(url).scheme
    base, _, kind = scheme.partition("+")
    try:
        if kind == "sentinel":
            return [_through_sentinel(url, base, timeout)]
        if kind == "cluster":
            return _of_cluster(url.replace(f"{base}+cluster", base, 1), timeout)
        return [("store", plain_client(url, timeout=timeout))]
    except redis.RedisError as error:
        raise StoreUnavailable(f"the store cannot be reached: {' '.join(str(error).split())}", sent=False) from None
    except ValueError as error:
        raise ConfigError(f"redis.url cannot be used: {' '.join(str(error).split())}") from None


def _options(url: str, timeout: float) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "username": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
        "ssl": parts.scheme.startswith("rediss"),
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
    }


def _through_sentinel(url: str, base: str, timeout: float) -> tuple[str, redis.Redis]:
    parts = urlsplit(url)
    hosts = [_host(item) for item in parts.netloc.rpartition("@")[2].split(",")]
    service, _, database = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("a Sentinel URL ends with the service's name")
    limits = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    # Through Any: the class has no annotations.
    sentinel: Any = cast(Any, Sentinel)(hosts, sentinel_kwargs=limits)
    host, port = sentinel.discover_master(service)
    return f"{host}:{port}", redis.Redis(host=host, port=port, db=int(database or 0), **_options(url, timeout))


def _of_cluster(url: str, timeout: float) -> list[tuple[str, redis.Redis]]:
    with plain_client(url, timeout=timeout) as client:
        nodes: dict[str, dict[str, Any]] = client.execute_command("CLUSTER NODES")
    masters = [name for name, node in nodes.items() if "master" in node["flags"] and node["slots"]]
    addresses = [_host(name.partition("@")[0]) for name in masters]
    options = _options(url, timeout)
    # A node that knows no name for itself leaves it empty: it is the one we asked.
    asked = urlsplit(url).hostname or "127.0.0.1"
    return [
        (f"{host or asked}:{port}", redis.Redis(host=host or asked, port=port, **options)) for host, port in addresses
    ]


def _host(item: str) -> tuple[str, int]:
    host, _, port = item.rpartition(":")
    return host.strip("[]"), int(port)
