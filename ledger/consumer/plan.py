"""Which server owns which shard, and which shards one transaction may read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis.crc import key_slot
from redis.exceptions import AskError, ResponseError

from ledger.consumer.steps import Address, Exchange, Steps
from ledger.errors import StoreError, StoreUnavailable
from ledger.store.opening import require_layout
from ledger.store.wire import StoreChanged, seq_key, translate

Unit = tuple[int, ...]
"""Shards read in one transaction."""


@dataclass(frozen=True, slots=True)
class Group:
    """The units of one server."""

    node: Address | None
    units: tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """Everything a consumer must know before it reads. `store_id` None: nothing was ever written there."""

    shards: int
    store_id: str | None
    groups: tuple[Group, ...]

    @property
    def may_block(self) -> bool:
        """Whether one blocking XREAD can watch every shard."""
        return len(self.groups) == 1 and len(self.groups[0].units) == 1

    def node_of(self, shard: int) -> Address | None:
        """Where a shard lives."""
        return next(group.node for group in self.groups for unit in group.units if shard in unit)


def plan_groups(shards: int, owners: Mapping[int, Address] | None) -> tuple[Group, ...]:
    """One group with one unit on a single server (`owners` None).

    On a cluster one group a node, with a unit a shard: shards differ in slot, and a command or transaction over two
    slots is refused (CROSSSLOT) even where one node owns both.
    """
    if owners is None:
        return (Group(None, (tuple(range(shards)),)),)
    units: dict[Address, list[Unit]] = {}
    for shard in range(shards):
        units.setdefault(owners[shard], []).append((shard,))
    return tuple(Group(node, tuple(found)) for node, found in units.items())


def owner_of(shard: int, slots: Sequence[Any]) -> Address:
    """The primary of a shard, from a CLUSTER SLOTS reply. Raises StoreUnavailable if no node serves its slot."""
    slot = key_slot(seq_key(shard).encode())
    for first, last, primary, *_ in slots:
        if first <= slot <= last:
            return (primary[0] or b"").decode(), int(primary[1])
    raise StoreUnavailable(f"no cluster node serves shard {shard:02x}", sent=False)


def checked(reply: Any) -> Any:
    """The reply itself; an error reply is raised as this package's error."""
    if isinstance(reply, AskError):
        raise StoreUnavailable("a shard is moving to another cluster node", sent=False)
    if isinstance(reply, ResponseError):
        error = translate(reply)
        if isinstance(error, StoreChanged):
            raise StoreUnavailable("the store was accepted under a new id just now: try again", sent=False)
        raise error
    return reply


def discover() -> Steps[Topology]:
    """Asks the store where its shards are. Raises StoreUnavailable, StoreError; ConfigError for a newer layout."""
    (info,) = yield Exchange(None, [["INFO", "cluster"]])
    # A user who may not ask INFO is taken to be on a single server.
    clustered = isinstance(info, bytes) and b"cluster_enabled:1" in info
    slots: Sequence[Any] | None = None
    if clustered:
        slots = checked((yield Exchange(None, [["CLUSTER", "SLOTS"]]))[0])
    first = owner_of(0, slots) if slots is not None else None
    store_id, count, layout = checked((yield Exchange(first, [["HMGET", seq_key(0), "store", "shards", "layout"]]))[0])
    require_layout(int(layout or 1))
    shards = int(count or 0)
    if store_id is None or shards < 1:
        return Topology(0, None, ())
    owners = {shard: owner_of(shard, slots) for shard in range(shards)} if slots is not None else None
    return Topology(shards, store_id.decode(), plan_groups(shards, owners))


def require_store(topology: Topology) -> str:
    """The store's id. Raises StoreError (store_empty) if nothing was ever written there."""
    if topology.store_id is None:
        raise StoreError("nothing was ever written to this store: start the service first", code="store_empty")
    return topology.store_id
