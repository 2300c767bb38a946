"""B7: what a mutation costs with 1,000, 100,000 and 1,000,000 sessions in the store."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator

from tests.bench.measure import Figure, Goal, Options, plain, say
from tests.bench.scene import Scene
from tests.bench.worker_path import SESSIONS, WorkerPath

SIZES = (1_000, 100_000, 1_000_000)
FILL_AT_ONCE = 50_000
SLICE = 5_000
"""Five of them stay below the 50 turns that the smallest size keeps in a session: pruning is not what is compared."""


def flat_figures(options: Options, sizes: tuple[int, ...] = SIZES) -> Iterator[Figure]:
    """Processor time of store and worker per mutation, each size against the first one; slices of one kind."""
    with Scene() as scene:
        path, held = scene.worker_path, 0
        costs: dict[int, list[tuple[float, float, float]]] = {}
        for size in sizes:
            before = scene.own_store.memory()
            _fill(path, held, size)
            each = (scene.own_store.memory() - before) / max(1, size - held)
            say(f"  B7: {size:,} sessions hold {each:,.0f} bytes each")
            held = size
            path.slice(2000, names=_some(size))
            costs[size] = [_cost(path, size) for _ in range(options.rounds)]
    yield from _figures(sizes, costs)


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


def _figures(sizes: tuple[int, ...], costs: dict[int, list[tuple[float, float, float]]]) -> list[Figure]:
    found = []
    for size in sizes[1:]:
        for place, what in enumerate(("store time", "worker time", "commands")):
            figure = Figure(
                f"B7 {size:,} {what}", f"{what} per mutation at {size:,} sessions against {sizes[0]:,}", None
            )
            if size == sizes[-1]:
                figure.goal = Goal(1.1, at_most=True)
            figure.pairs = [(one[place], first[place]) for one, first in zip(costs[size], costs[sizes[0]], strict=True)]
            found.append(plain(figure, [one / first for one, first in figure.pairs]))
    return found
