"""The consumer itself, without I/O: a generator that asks for what it needs and is driven by `for` or `async for`."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ledger.consumer.confirming import Confirm, confirm_read
from ledger.consumer.cursors import NOTHING_READ, Cursors
from ledger.consumer.errors import CursorGap, GapReason
from ledger.consumer.outcome import Outcome, from_stream
from ledger.consumer.plan import Group, Topology, checked, discover, require_store
from ledger.consumer.reading import ShardRead, find_gap, next_position, parse_read, read_commands, wait_command
from ledger.consumer.steps import Emit, Exchange, Load, Pause, Save, Steps
from ledger.errors import StoreUnavailable

# How often the streams' last ids are looked at, and how often cursors past other tenants' outcomes are saved.
DEEP_SECONDS = 1.0


class Start(StrEnum):
    """Where a consumer without saved cursors begins."""

    BEGINNING = "beginning"  # with what the streams still hold
    NOW = "now"  # with what is published from now on


@dataclass(frozen=True, slots=True)
class Options:
    """`tenant` None: every tenant. `count` bounds the outcomes of one shard in one read; seconds bound one wait.

    `confirm` is set on a store with replicas: an outcome is handed out when they hold it too (C-25).
    """

    tenant: str | None = None
    start: Start = Start.BEGINNING
    count: int = 128
    block_seconds: float = 2.0
    poll_seconds: float = 0.05
    confirm: Confirm | None = None


@dataclass(slots=True)
class Progress:
    """How far this consumer is, per shard: what it handed out, and what its caller has processed."""

    store_id: str
    handed: list[str]
    done: list[str]

    @classmethod
    def at(cls, cursors: Cursors) -> Progress:
        """Nothing handed out after `cursors`."""
        return cls(cursors.store_id, list(cursors.positions), list(cursors.positions))

    def cursors(self) -> Cursors:
        """What to save."""
        return Cursors(self.store_id, tuple(self.done))


@dataclass(slots=True)
class Core:
    """The state of one consumer between two of its iterations."""

    options: Options
    progress: Progress | None = None
    saved: Cursors | None = None
    _saved_at: float = -math.inf
    _deep_at: float = -math.inf
    _fresh: set[int] = field(default_factory=set)

    @property
    def standing(self) -> Progress:
        """Where an iteration under way stands."""
        if self.progress is None:
            raise RuntimeError("no iteration has begun")
        return self.progress

    def follow(self, *, once: bool) -> Steps[None]:
        """Emits outcomes for ever, or with `once` until every shard was found read to its end.

        Raises CursorGap, StoreUnavailable, StoreError; what was not processed is emitted again next time.
        """
        topology = yield from discover()
        progress = yield from self._begin(topology)
        self._deep_at = -math.inf
        while True:
            now = time.monotonic()
            deep = now - self._deep_at >= DEEP_SECONDS
            self._deep_at = now if deep else self._deep_at
            moved = False
            for group in topology.groups:
                moved |= yield from self._read_group(progress, group, deep=deep)
            if moved:
                continue
            if once:
                yield from self.save()
                return
            yield from self._wait(topology, progress)

    def restart(self, cursors: Cursors) -> Steps[None]:
        """Goes on from `cursors` instead, and saves them."""
        self.progress = Progress.at(cursors)
        self._fresh.clear()
        yield from self.save()

    def save(self) -> Steps[None]:
        """Saves what was processed, if that is news."""
        if self.progress is not None and self.saved != self.progress.cursors():
            cursors = self.progress.cursors()
            yield Save(cursors)
            self.saved, self._saved_at = cursors, time.monotonic()

    def _begin(self, topology: Topology) -> Steps[Progress]:
        if self.progress is None:
            self.saved = yield Load()
            if self.saved is not None:
                self.progress = Progress.at(self.saved)
        if self.progress is None:
            store_id = require_store(topology)
            if self.options.start is Start.NOW:
                positions = yield from last_ids(topology, store_id)
            else:
                positions = (NOTHING_READ,) * topology.shards
                self._fresh = set(range(topology.shards))
            self.progress = Progress.at(Cursors(store_id, positions))
        progress = self.progress
        progress.handed = list(progress.done)
        if topology.store_id != progress.store_id or topology.shards != len(progress.done):
            raise CursorGap(GapReason.STORE_CHANGED, 0, progress.done[0])
        return progress

    def _read_group(self, progress: Progress, group: Group, *, deep: bool) -> Steps[bool]:
        """Reads every unit of one server once and hands out what is there; whether anything was."""
        reads = yield from read_group(group, progress.done, self.options.count, deep=deep)
        outcomes: list[Outcome] = []
        ends: dict[int, str] = {}
        for read in reads:
            position = progress.done[read.shard]
            gap = find_gap(read, position, progress.store_id, fresh=read.shard in self._fresh)
            if gap is not None:
                raise gap
            end = next_position(read, position)
            if end != position:
                ends[read.shard] = end
                outcomes += from_stream(read.shard, read.entries, self._tenant)
        if ends and self.options.confirm is not None:
            yield from confirm_read(self.options.confirm, group.node, next(iter(ends)), progress.store_id)
        if outcomes:
            yield Emit(outcomes, ends)
        self._fresh.difference_update(read.shard for read in reads)
        for shard, end in ends.items():
            progress.handed[shard] = progress.done[shard] = end
        if outcomes or time.monotonic() - self._saved_at >= DEEP_SECONDS:
            yield from self.save()
        return bool(ends)

    def _wait(self, topology: Topology, progress: Progress) -> Steps[None]:
        if not topology.may_block:
            yield Pause(self.options.poll_seconds)
            return
        group = topology.groups[0]
        command = wait_command(group.units[0], progress.done, max(1, int(self.options.block_seconds * 1000)))
        (reply,) = yield Exchange(group.node, [command])
        checked(reply)

    @property
    def _tenant(self) -> bytes | None:
        return None if self.options.tenant is None else self.options.tenant.encode()


def read_group(group: Group, positions: Sequence[str], count: int, *, deep: bool) -> Steps[list[ShardRead]]:
    """Reads every unit of one server in one exchange. Raises what `checked` raises."""
    sent = [read_commands(unit, positions, count, deep=deep) for unit in group.units]
    replies = yield Exchange(group.node, [command for commands in sent for command in commands])
    reads: list[ShardRead] = []
    at = 0
    for unit, commands in zip(group.units, sent, strict=True):
        reads += parse_read(unit, replies[at : at + len(commands)], deep=deep)
        at += len(commands)
    return reads


def last_ids(topology: Topology, store_id: str) -> Steps[tuple[str, ...]]:
    """The last id of each shard's stream. Raises StoreUnavailable while shards disagree about the store (C-27)."""
    found = [NOTHING_READ] * topology.shards
    for group in topology.groups:
        reads = yield from read_group(group, found, 1, deep=True)
        for read in reads:
            if read.store_id not in (None, store_id):
                raise StoreUnavailable("the store is being accepted under a new id: try again", sent=False)
            found[read.shard] = read.last_id or NOTHING_READ
    return tuple(found)
