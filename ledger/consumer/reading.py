"""One read of a unit of shards: its commands, what they say, and whether anything is missing. No I/O, no state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from ledger.consumer.cursors import NOTHING_READ, id_key
from ledger.consumer.errors import CursorGap, GapReason
from ledger.consumer.keys import floor_key, outcomes_key
from ledger.consumer.plan import Unit, checked
from ledger.consumer.steps import Command
from ledger.store.wire import seq_key


@dataclass(frozen=True, slots=True)
class ShardRead:
    """What one shard answered. `last_id` is None unless it was asked for; `entries` are raw."""

    shard: int
    floor: str | None
    store_id: str | None
    last_id: str | None
    entries: Sequence[Any]


def read_commands(unit: Unit, positions: Sequence[str], count: int, *, deep: bool) -> list[Command]:
    """A transaction that reads up to `count` entries a shard, and the floor and store id they must be judged by.

    In one step, because a trim between two commands could look like a gap, or hide one. `deep` asks for each stream's
    last id too.
    """
    keys = [outcomes_key(shard) for shard in unit]
    commands: list[Command] = [["MULTI"], ["MGET", *map(floor_key, unit)]]
    commands += [["HGET", seq_key(shard), "store"] for shard in unit]
    if deep:
        commands += [["XINFO", "STREAM", key] for key in keys]
    after = [positions[shard] for shard in unit]
    return [*commands, ["XREAD", "COUNT", count, "STREAMS", *keys, *after], ["EXEC"]]


def wait_command(unit: Unit, positions: Sequence[str], milliseconds: int) -> Command:
    """Answers as soon as any shard has more; what it answers is read again, in the transaction."""
    keys = [outcomes_key(shard) for shard in unit]
    after = [positions[shard] for shard in unit]
    return ["XREAD", "COUNT", 1, "BLOCK", milliseconds, "STREAMS", *keys, *after]


def parse_read(unit: Unit, replies: Sequence[Any], *, deep: bool) -> list[ShardRead]:
    """The answers to `read_commands`. Raises what `checked` raises."""
    for reply in replies:
        checked(reply)
    floors, *rest = replies[-1]
    checked(floors)
    size = len(unit)
    ids = rest[:size]
    infos: Sequence[Any] = rest[size:-1] if deep else [None] * size
    streams: dict[bytes, Sequence[Any]] = dict(checked(rest[-1]) or ())
    return [
        ShardRead(
            shard,
            _text(floors[at]),
            _text(checked(ids[at])),
            _last_id(infos[at]) if deep else None,
            streams.get(outcomes_key(shard).encode(), ()),
        )
        for at, shard in enumerate(unit)
    ]


def find_gap(read: ShardRead, position: str, store_id: str, *, fresh: bool) -> CursorGap | None:
    """Why `position` cannot go on in this shard, or None (C-111).

    `fresh`: the consumer never stood anywhere and takes what is left, so that a floor above it is no gap.
    """
    # A shard is made at the first start; until then it has no id, and nothing was read from it either.
    made = read.store_id is not None or position != NOTHING_READ
    if made and read.store_id != store_id:
        return CursorGap(GapReason.STORE_CHANGED, read.shard, position)
    if read.last_id is not None and id_key(read.last_id) < id_key(position):
        return CursorGap(GapReason.WENT_BACK, read.shard, position)
    if read.floor is not None and not fresh and id_key(position) < id_key(read.floor):
        return CursorGap(GapReason.TRIMMED, read.shard, position)
    return None


def next_position(read: ShardRead, position: str) -> str:
    """Where to read on: after the last entry, or at the floor if a fresh cursor found nothing."""
    if read.entries:
        last: str = read.entries[-1][0].decode()
        return last
    if read.floor is not None and id_key(position) < id_key(read.floor):
        return read.floor
    return position


def _last_id(info: Any) -> str:
    """A stream that was never written has no key, and so no last id."""
    if isinstance(info, ResponseError) and "no such key" in str(info).lower():
        return NOTHING_READ
    flat = checked(info)
    named: Mapping[bytes, Any] = dict(zip(flat[::2], flat[1::2], strict=True))
    last: bytes = named[b"last-generated-id"]
    return last.decode()


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
