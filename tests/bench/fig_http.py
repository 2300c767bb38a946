"""B2, B3h and B9: the front door under load, against the empty route and Restate's ingress, and with idle streams."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.contestants import RESTATE_PYTHON, RESTATE_SERVER
from tests.bench.drivers import DriverFailed, module
from tests.bench.measure import Figure, Goal, Options, plain, say, side_by_side
from tests.bench.plugin import ASKED
from tests.bench.restate import Restate
from tests.bench.scene import Scene
from tests.support.stack import AGENT, Api

STREAMS = 500
LIVE_CALLS = 200
HEAD_SECONDS = 20.0
PARTITIONS = (4, 2, 1)


def http_figures(options: Options) -> Iterator[Figure]:
    """B2 and B9."""
    with Scene() as scene:
        if options.wants("B2"):
            figure = Figure("B2", "end to end over HTTP, 64 clients, against an empty route with one write", Goal(0.5))
            yield side_by_side(figure, scene.http_clients.load, scene.floor_clients.load, options)
        if options.wants("B9"):
            yield from _b9(scene)


def restate_figures(options: Options) -> Iterator[Figure]:
    """B3h: Restate at its defaults, and at the partition count that was best here."""
    if not options.wants("B3h"):
        return
    if not (RESTATE_SERVER.exists() and RESTATE_PYTHON.exists()):
        say("  B3h skipped: Restate is not installed (make bench-peers)")
        return
    with Scene() as scene:
        yield _restate(scene, options, None, "at its defaults", Goal(1.2))
        best = max(PARTITIONS, key=lambda partitions: _restate_rate(scene, partitions))
        yield _restate(scene, options, best, f"with {best} partitions, its best here", Goal(0.8))


def _restate(scene: Scene, options: Options, partitions: int | None, how: str, goal: Goal) -> Figure:
    name = "B3h" if partitions is None else "B3h best"
    figure = Figure(name, f"over HTTP, 64 clients, against Restate {how}", goal)
    with Restate(
        scene.directory / "restate", server=RESTATE_SERVER, python=RESTATE_PYTHON, partitions=partitions
    ) as one:
        driver = scene.driver(f"restate-load-{partitions}", module("http_load", str(one.port), "restate"))
        return side_by_side(figure, scene.http_clients.load, driver.load, options)


def _restate_rate(scene: Scene, partitions: int) -> float:
    with Restate(
        scene.directory / "restate", server=RESTATE_SERVER, python=RESTATE_PYTHON, partitions=partitions
    ) as one:
        driver = scene.driver(f"restate-try-{partitions}", module("http_load", str(one.port), "restate"))
        driver.load(128)
        return driver.load(1024).rate


def _b9(scene: Scene) -> list[Figure]:
    """Streams of a run that waits for a person: nothing happens on them but heartbeats."""
    api = scene.front_door
    run = api.trigger("idle", "d1", [(ASKED, {})]).body["run_id"]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * STREAMS)), hard))
    before = _resident(scene)
    streams: list[socket.socket] = []
    try:
        streams.extend(_open_stream(api, run) for _ in range(STREAMS))
        memory = (_resident(scene) - before) / STREAMS
        times = sorted(_live_ms(api) for _ in range(LIVE_CALLS))
    finally:
        for one in streams:
            one.close()
    held = Figure("B9", "idle SSE streams on one front door", Goal(400), "streams")
    live = Figure("B9 live", f"/livez meanwhile, slowest of {LIVE_CALLS}", Goal(50, at_most=True), "ms")
    live.notes = {"p50_ms": times[len(times) // 2]}
    size = Figure("B9 memory", "front door memory per open stream", None, "bytes")
    return [plain(held, [len(streams)]), plain(live, [times[-1]]), plain(size, [memory])]


def _open_stream(api: Api, run: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", api.port), HEAD_SECONDS)
    request = (
        f"GET /api/runs/{run}/events?follow=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
        f"Authorization: Bearer {AGENT}\r\n\r\n"
    )
    connection.sendall(request.encode())
    answer = b""
    while b"approval_requested" not in answer:
        part = connection.recv(65536)
        if not part or not answer.startswith(b"HTTP/1.1 200"[: len(answer)]):
            raise DriverFailed(f"a stream was not opened: {(answer + part)[:200]!r}")
        answer += part
    return connection


def _live_ms(api: Api) -> float:
    began = time.perf_counter()
    if api.get("/livez").status != 200:
        raise DriverFailed("/livez did not answer 200")
    return (time.perf_counter() - began) * 1000


def _resident(scene: Scene) -> int:
    """Bytes of the front door's processes: gunicorn's arbiter and its worker."""
    arbiter = scene.stack.front_doors[-1].pid
    children = Path(f"/proc/{arbiter}/task/{arbiter}/children").read_text().split()
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in [str(arbiter), *children])
    return pages * resource.getpagesize()
