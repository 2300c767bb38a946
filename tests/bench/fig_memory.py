"""B8 and B10: what is left in the store of a settled mutation, and how fast outcomes are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.bench.drivers import module
from tests.bench.measure import Figure, Goal, Options, plain
from tests.bench.scene import Scene
from tests.bench.worker_path import SHARDS

MUTATIONS = 10_000
SAMPLE = 300


def store_figures(options: Options) -> Iterator[Figure]:
    """Both figures, on the same 10,000 mutations of 1,000 sessions; B10 reads at least ten times as many."""
    if not options.wants("B8", "B10"):
        return
    with Scene() as scene:
        scene.worker_path.slice(MUTATIONS)
        if options.wants("B8"):
            yield from _b8(scene)
        if options.wants("B10"):
            scene.worker_path.slice(MUTATIONS * 4)
            yield _b10(scene, options)


def _b8(scene: Scene) -> list[Figure]:
    client = scene.own_store.client
    sessions = _keys(client, "ml:{*}:session:*")
    runs = [key for key in _keys(client, "ml:{*}:run:*") if not key.endswith(b":journal")]
    per_session = [_bytes(client, key) for key in sessions]
    # A session's own fields are not a mutation's: what one with none would hold is taken off.
    empty = _empty_session(client)
    entries = sum(size - empty for size in per_session) / MUTATIONS
    streams = [f"ml:{{{shard:02x}}}:outcomes" for shard in range(SHARDS)]
    outcome = sum(_bytes(client, key) for key in streams) / sum(client.xlen(key) for key in streams)
    some = runs[:SAMPLE]
    run = sum(_bytes(client, key) + _bytes(client, key + b":journal") for key in some) / len(some)
    settled = Figure("B8", "store memory per settled mutation: entry, turn, delivery", Goal(650, at_most=True), "bytes")
    settled.notes = {"per_session": sum(per_session) / len(per_session), "empty_session": empty}
    return [
        plain(settled, [entries]),
        plain(Figure("B8 outcome", "store memory per outcome", Goal(450, at_most=True), "bytes"), [outcome]),
        plain(Figure("B8 run", "store memory per run and journal", Goal(2500, at_most=True), "bytes"), [run]),
    ]


def _empty_session(client: Any) -> int:
    """A session hash with its `meta` alone, measured as a copy."""
    key = _keys(client, "ml:{*}:session:*")[0]
    client.hset("bench:empty", "meta", client.hget(key, "meta"))
    size = _bytes(client, b"bench:empty")
    client.delete("bench:empty")
    return size


def _keys(client: Any, pattern: str) -> list[bytes]:
    return list(client.scan_iter(match=pattern, count=1000))


def _bytes(client: Any, key: Any) -> int:
    return int(client.memory_usage(key, samples=0) or 0)


def _b10(scene: Scene, options: Options) -> Figure:
    reader = scene.driver("consumer", module("consume", scene.own_store.url))
    figure = Figure("B10", "outcomes read by one consumer process", Goal(20_000), "/s")
    reader.load(1, 1)
    return plain(figure, [reader.load(1, 1).rate for _ in range(options.rounds)])
