"""Which server holds which shard: one server, the primary that Sentinel names, the masters of a cluster. No I/O."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import urlsplit

from redis.crc import key_slot

from ledger.errors import StoreUnavailable
from ledger.store.wire import seq_key

Node = tuple[str, int]
"""Host and port of a server; None in its place means the server that the URL names."""
LAST_SLOT = 16_383
T = TypeVar("T")


class Kind(StrEnum):
    """What answers at the address of a URL."""

    SERVER = "server"  # the store itself
    SENTINEL = "sentinel"  # who knows where the store is
    CLUSTER = "cluster"  # any node of the store


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A store URL taken apart. `base` is a URL that redis-py reads: the first server's, with every option."""

    kind: Kind
    base: str
    seeds: tuple[Node, ...]
    service: str = ""


def parse_address(url: str) -> StoreAddress:
    """Reads `redis://`, `rediss://`, `unix://` and their `+sentinel` and `+cluster` forms.

    `redis+sentinel://[user:password@]host:port[,host:port]/service[/db]` and
    `redis+cluster://[user:password@]host:port[,host:port]`. Raises ValueError.
    """
    parts = urlsplit(url)
    base, _, kind = parts.scheme.partition("+")
    if not kind:
        return StoreAddress(Kind.SERVER, url, ())
    login, at, hosts = parts.netloc.rpartition("@")
    seeds = tuple(_node(host) for host in hosts.split(","))
    service, _, database = parts.path.strip("/").partition("/")
    if kind == Kind.CLUSTER:
        service, database = "", ""
    elif not service:
        raise ValueError("a Sentinel URL ends with the service's name")
    path = f"/{database}" if database else ""
    query = f"?{parts.query}" if parts.query else ""
    first = hosts.split(",")[0]
    return StoreAddress(Kind(kind), f"{base}://{login}{at}{first}{path}{query}", seeds, service)


def _node(text: str) -> Node:
    host, colon, port = text.rpartition(":")
    if not colon:
        raise ValueError("every host needs its port")
    return host.strip("[]"), int(port)


@dataclass(frozen=True, slots=True)
class Placement:
    """Slots and their servers, as `(first slot, last slot, server)`."""

    ranges: tuple[tuple[int, int, Node | None], ...]

    def of_slot(self, slot: int) -> Node | None:
        """The server of a slot. Raises StoreUnavailable if none serves it."""
        for first, last, node in self.ranges:
            if first <= slot <= last:
                return node
        raise StoreUnavailable(f"no cluster node serves slot {slot}", sent=False)

    def of_key(self, key: str) -> Node | None:
        """The server of a key."""
        return self.of_slot(key_slot(key.encode()))

    def of_shard(self, shard: int) -> Node | None:
        """The server of a shard."""
        return self.of_key(seq_key(shard))

    def shards_by_node(self, shards: int) -> dict[Node | None, list[int]]:
        """Every server that holds shards, that of shard 0 first, and which."""
        found: dict[Node | None, list[int]] = {}
        for shard in range(shards):
            found.setdefault(self.of_shard(shard), []).append(shard)
        return found


ONE_SERVER = Placement(((0, LAST_SLOT, None),))
"""Everything is where the URL points."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Sends `command` to `node` on a connection of its own; `bare` without login and database, as to a Sentinel.

    Answered with the reply, or None if there is none or only an error.
    """

    node: Node
    command: Sequence[str]
    bare: bool = False


Steps = Generator[Ask, Any, T]


def locate(address: StoreAddress, known: Sequence[Node] = ()) -> Steps[Placement]:
    """Asks where the shards are; `known` servers are asked after those of the URL.

    Raises StoreUnavailable when nobody knows.
    """
    if address.kind is Kind.SERVER:
        return ONE_SERVER
    sentinel = address.kind is Kind.SENTINEL
    command = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.service] if sentinel else ["CLUSTER", "SLOTS"]
    for node in dict.fromkeys((*address.seeds, *(() if sentinel else known))):
        reply = yield Ask(node, command, bare=sentinel)
        if not reply:
            continue
        if sentinel:
            host, port = reply
            return Placement(((0, LAST_SLOT, (host.decode(), int(port))),))
        return Placement(tuple(_range(row, node) for row in reply))
    why = f"no Sentinel names a primary for {address.service!r}" if sentinel else "no node of the cluster answers"
    raise StoreUnavailable(f"the store cannot be reached: {why}", sent=False)


def _range(row: Sequence[Any], asked: Node) -> tuple[int, int, Node]:
    """One row of CLUSTER SLOTS; a node that knows no name for itself leaves it empty."""
    first, last, primary = row[:3]
    return int(first), int(last), ((primary[0] or b"").decode() or asked[0], int(primary[1]))
