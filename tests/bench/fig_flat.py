"""B7: what a mutation costs with 1,000, 100,000 and 1,000,000 sessions in the store."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence

from tests.bench.measure import Figure, Goal, Options, plain, say
from tests.bench.scene import Scene
from tests.bench.worker_path import SESSIONS, WorkerPath

SIZES = (1_000, 100_000, 1_000_000)
FILL_AT_ONCE = 50_000
SLICE = 4_000
"""Ten of them stay below the 50 turns that the smallest size keeps in a session: pruning is not what is compared."""


def flat_figures(options: Options, sizes: tuple[int, ...] = SIZES) -> Iterator[Figure]:
    """Processor time of store and worker per mutation, a store that grows against one of the first size beside it."""
    first, *larger = sizes
    with Scene() as small, Scene() as scene:
        _fill(small.worker_path, 0, first)
        small.worker_path.slice(2000, names=_some(first))
        path, held = scene.worker_path, 0
        for size in larger:
            before = scene.own_store.memory()
            _fill(path, held, size)
            each = (scene.own_store.memory() - before) / max(1, size - held)
            say(f"  B7: {size:,} sessions hold {each:,.0f} bytes each")
            held = size
            path.slice(2000, names=_some(size))
            pairs = [(_cost(path, size), _cost(small.worker_path, first)) for _ in range(options.rounds)]
            yield from _figures(size, first, pairs, last=size == larger[-1])


def _fill(path: WorkerPath, held: int, size: int) -> None:
    """One settled mutation in each new session."""
    began = time.monotonic()
    while held < size:
        count = min(FILL_AT_ONCE, size - held)
        path.slice(count, names=iter([f"flat-{n}" for n in range(held, held + count)]))
        held += count
        say(f"  B7: {held:,} of {size:,} sessions after {time.monotonic() - began:.0f} s")


def _some(size: int) -> Iterator[str]:
    """As many sessions each time, picked at random among all, again and again: only what lies beside them differs."""
    return itertools.cycle([f"flat-{n}" for n in random.sample(range(size), SESSIONS)])


def _cost(path: WorkerPath, size: int) -> tuple[float, float, float]:
    """Microseconds of store and of worker, and commands, per mutation."""
    one = path.slice(SLICE, names=_some(size))
    work = path.work
    return (
        work.cpu_seconds / one.count * 1e6,
        path.worker_cpu / one.count * 1e6,
        sum(work.calls.values()) / one.count,
    )


def _figures(
    size: int, first: int, pairs: Sequence[tuple[tuple[float, float, float], tuple[float, float, float]]], *, last: bool
) -> Iterator[Figure]:
    for place, what in enumerate(("store time", "worker time", "commands")):
        title = f"{what} per mutation at {size:,} sessions against {first:,}"
        figure = Figure(f"B7 {size:,} {what}", title, Goal(1.1, at_most=True) if last else None)
        figure.pairs = [(many[place], few[place]) for many, few in pairs]
        yield plain(figure, [many / few for many, few in figure.pairs])
