"""B1 and B5: the worker path against the floor, and what a mutation costs there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.bench.drivers import Slice
from tests.bench.measure import Figure, Goal, Options, side_by_side, sized
from tests.bench.scene import Scene
from tests.bench.worker_path import WorkerPath

CALLS = 32


def worker_figures(options: Options) -> Iterator[Figure]:
    """B1, and B5 against B1's way of working."""
    with Scene() as scene:
        if options.wants("B1"):
            yield _b1(scene.worker_path, scene, options)
        if options.wants("B5"):
            yield _b5(scene.worker_path, options)


def _b1(path: WorkerPath, scene: Scene, options: Options) -> Figure:
    figure = Figure("B1", "worker path, 1,000 sessions, against the floor of two confirmed writes", Goal(0.7))
    costs: list[dict[str, float | None]] = []
    ours = _with_costs(path, costs)
    counts = (sized(path.slice, options.seconds, 2000), sized(scene.floor.load, options.seconds, 1000))
    side_by_side(figure, ours, scene.floor.load, options, counts=counts)
    figure.notes["per_mutation"] = costs
    return figure


def _with_costs(path: WorkerPath, costs: list[dict[str, float | None]]) -> Callable[[int], Slice]:
    def run(count: int) -> Slice:
        one = path.slice(count)
        work = path.work
        costs.append(
            {
                "scripts": work.scripts / one.count,
                "script_usec": work.script_usec / one.count,
                "store_cpu_usec": work.cpu_seconds / one.count * 1e6,
                "worker_cpu_usec": path.worker_cpu / one.count * 1e6,
                "fsyncs": None if work.fsyncs is None else work.fsyncs / one.count,
            }
        )
        return one

    return run


def _b5(path: WorkerPath, options: Options) -> Figure:
    figure = Figure("B5", f"deliveries of {CALLS} calls, per call, against single-call deliveries", Goal(0.8))
    count = sized(path.slice, options.seconds, 2000) // CALLS * CALLS

    def many(count: int) -> Slice:
        return path.slice(count, CALLS)

    return side_by_side(figure, many, path.slice, options, counts=(count, count))
