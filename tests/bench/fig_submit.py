"""B3, B4 and B6: deliveries through a host process, against peers, alone, and what they cost the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from tests.bench import postgres
from tests.bench.contestants import NODE, Contestant
from tests.bench.drivers import Driver, DriverFailed
from tests.bench.measure import Figure, Goal, Options, plain, say, side_by_side, sized
from tests.bench.scene import Scene

LONE, GAP_MS = 60, 20.0
# Commands of RQ that no script of ours calls.
RQ_COMMANDS = (
    "lpush",
    "sadd",
    "srem",
    "multi",
    "exec",
    "expire",
    "publish",
    "blmove",
    "lmove",
    "brpop",
    "blpop",
    "del",
)
READS = ("evalsha", "hgetall")
"""Reading a run's end takes a whole hash, which nothing does that moves a mutation; other reads are no functions."""


def submit_figures(options: Options, contestants: Sequence[Contestant]) -> Iterator[Figure]:
    """B6, B4, and B3 against each contestant that is installed."""
    with Scene() as scene:
        if options.wants("B6"):
            yield from _b6(scene, options)
        if options.wants("B4"):
            yield from _b4(scene, options)
        if options.wants("B3"):
            count = sized(scene.submitter.load, options.seconds)
            for one in contestants:
                if not one.installed:
                    say(f"  B3 skipped: {one.title} is not installed (make bench-peers)")
                    continue
                try:
                    yield _b3(scene, one, options, count)
                except DriverFailed as error:
                    say(f"  B3 skipped: {error}")


def _b3(scene: Scene, one: Contestant, options: Options, count: int) -> Figure:
    figure = Figure(f"B3 {one.name}", f"submitted by a host, 64 in flight, against {one.title}", one.goal)
    with ExitStack() as stack:
        address = _backend(scene, one, stack)
        peer = Driver(
            one.name, one.command(address), log=scene.directory / f"{one.name}.log", env={"BENCH_NODE": str(NODE)}
        )
        driver = stack.enter_context(peer)
        peer_count = sized(driver.load, options.seconds, one.first)
        return side_by_side(figure, scene.submitter.load, driver.load, options, counts=(count, peer_count))


def _backend(scene: Scene, one: Contestant, stack: ExitStack) -> str:
    if one.backend == "postgres":
        programs = postgres.find()
        if programs is None:
            raise DriverFailed(f"{one.title} needs Debian's package `postgresql`")
        return stack.enter_context(postgres.Postgres(scene.directory / f"pg-{one.name}", programs)).url
    if one.backend == "directory":
        return str(scene.directory)
    return scene.store(f"peer-{one.name}").url


def _b6(scene: Scene, options: Options) -> list[Figure]:
    count = sized(scene.submitter.load, options.seconds)
    moving, reading, rq, fsyncs = [], [], [], []
    for _ in range(options.rounds):
        before = scene.own_store.counters()
        scene.submitter.load(count)
        did = scene.own_store.counters().since(before)
        reads = sum(did.calls.get(name, 0) for name in READS)
        moving.append((did.scripts - reads) / count)
        reading.append(reads / count)
        rq.append(sum(did.calls.get(name, 0) for name in RQ_COMMANDS) / count)
        fsyncs.append(None if did.fsyncs is None else did.fsyncs / count)
    scripts = Figure("B6", "scripts to the store per mutation, admission included", Goal(3, at_most=True), "scripts")
    scripts.notes = {"reads_of_the_outcome": reading, "fsyncs": fsyncs}
    commands = Figure("B6 rq", "RQ commands per mutation", Goal(0.1, at_most=True), "commands")
    return [plain(scripts, moving), plain(commands, rq)]


def _b4(scene: Scene, options: Options) -> list[Figure]:
    engine = Figure("B4", "a lone mutation submitted by a host, p50 against the floor's", Goal(3.5, at_most=True))
    over_http = Figure("B4 http", "a lone mutation over HTTP, p50 against the floor's", Goal(5, at_most=True))
    clients = scene.http_clients
    for figure, driver in ((engine, scene.submitter), (over_http, clients)):
        driver.lone(10, GAP_MS)
        scene.floor.lone(10, GAP_MS)
        side_by_side(
            figure,
            lambda count, driver=driver: driver.lone(count, GAP_MS),  # type: ignore[misc]  # bound now, not later
            lambda count: scene.floor.lone(count, GAP_MS),
            options,
            counts=(LONE, LONE),
            value=lambda one: one.p50_ms,
            lower_is_better=True,
        )
    return [engine, over_http]
