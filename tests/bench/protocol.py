"""How a measured process is driven: one JSON line in, one out. Standard library only: peers run it in their own venvs.

Requests: {"op": "load", "count": n, "flight": m} runs n units, m at a time; {"op": "lone", "count": n, "gap_ms": g}
runs n units one by one, g ms apart; {"op": "bye"} ends. Answers: {"count", "seconds", "p50_ms", "p99_ms"}.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 120.0
PEERS = Path(__file__).resolve().parent / "peers"


def serve(load: Callable[[int, int], dict[str, Any]], lone: Callable[[int, float], dict[str, Any]]) -> None:
    """Answers requests on stdin until `bye` or its end."""
    answer({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["op"] == "bye":
            return
        if asked["op"] == "load":
            answer(load(asked["count"], asked["flight"]))
        else:
            answer(lone(asked["count"], asked["gap_ms"] / 1000))


async def serve_async(one: Callable[[int], Awaitable[None]]) -> None:
    """`serve` for a process with an event loop; `one(n)` is a whole unit, done when it returns."""
    numbers = itertools.count()
    loop = asyncio.get_running_loop()
    answer({"ready": True})
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        asked = json.loads(line)
        if asked["op"] == "bye":
            return
        if asked["op"] == "load":
            answer(await load_async(one, numbers, asked["count"], asked["flight"]))
        else:
            answer(await lone_async(one, numbers, asked["count"], asked["gap_ms"] / 1000))


async def load_async(
    one: Callable[[int], Awaitable[None]], numbers: Iterator[int], count: int, flight: int
) -> dict[str, Any]:
    """`count` units, `flight` coroutines."""
    left = iter(range(count))
    times: list[float] = []

    async def lane() -> None:
        for _ in left:
            began = time.perf_counter()
            await one(next(numbers))
            times.append(time.perf_counter() - began)

    began = time.perf_counter()
    async with asyncio.timeout(LIMIT_SECONDS):
        await asyncio.gather(*(lane() for _ in range(flight)))
    return summary(times, time.perf_counter() - began)


async def lone_async(
    one: Callable[[int], Awaitable[None]], numbers: Iterator[int], count: int, gap: float
) -> dict[str, Any]:
    """`count` units, one at a time, `gap` seconds between."""
    times = []
    started = time.perf_counter()
    for _ in range(count):
        await asyncio.sleep(gap)
        began = time.perf_counter()
        await one(next(numbers))
        times.append(time.perf_counter() - began)
    return summary(times, time.perf_counter() - started)


def load_threads(one: Callable[[int], None], numbers: Iterator[int], count: int, flight: int) -> dict[str, Any]:
    """`count` units, `flight` threads."""
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    for _ in range(count):
        todo.put(next(numbers))
    times: list[float] = []

    def lane() -> None:
        while True:
            try:
                n = todo.get_nowait()
            except queue.Empty:
                return
            began = time.perf_counter()
            one(n)
            times.append(time.perf_counter() - began)

    threads = [threading.Thread(target=lane, daemon=True) for _ in range(flight)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    if len(times) < count:
        raise SystemExit(f"only {len(times)} of {count} units ended: {LIMIT_SECONDS:g} s are over")
    return summary(times, time.perf_counter() - began)


def lone_threads(one: Callable[[int], None], numbers: Iterator[int], count: int, gap: float) -> dict[str, Any]:
    """`lone_async` without a loop."""
    times = []
    started = time.perf_counter()
    for _ in range(count):
        time.sleep(gap)
        began = time.perf_counter()
        one(next(numbers))
        times.append(time.perf_counter() - began)
    return summary(times, time.perf_counter() - started)


def serve_threads(one: Callable[[int], None]) -> None:
    """`serve` for a client that blocks."""
    numbers = itertools.count()
    serve(
        lambda count, flight: load_threads(one, numbers, count, flight),
        lambda count, gap: lone_threads(one, numbers, count, gap),
    )


def summary(times: list[float], seconds: float) -> dict[str, Any]:
    """What one slice came to."""
    ordered = sorted(times)
    return {
        "count": len(ordered),
        "seconds": seconds,
        "p50_ms": ordered[len(ordered) // 2] * 1000,
        "p99_ms": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1000,
    }


def answer(value: dict[str, Any]) -> None:
    """One JSON line to whoever drives this process."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def start_worker(command: list[str], ready: str = "") -> subprocess.Popen[bytes]:
    """Starts a peer's own worker; it dies with this process. `ready` is what it writes once it takes work."""
    bind_to_life = str(Path(__file__).resolve().parents[2] / "ledger" / "supervise" / "child.py")
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", bind_to_life, str(os.getpid()), *command],
        cwd=PEERS,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PEERS), str(PEERS.parent)]), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    lines = process.stdout or ()
    for line in lines:
        sys.stderr.buffer.write(line)
        if ready.encode() in line:
            break
    threading.Thread(target=_pass_on, args=(lines,), daemon=True).start()
    return process


def _pass_on(lines: Iterable[bytes]) -> None:
    for line in lines:
        sys.stderr.buffer.write(line)


def stop_worker(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then SIGKILL."""
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()


class Done:
    """Hears from a peer's tasks that their bodies ran, by datagrams on loopback.

    So no result store is charged to a peer, and completion is told earlier than the peer itself would know it.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._waiting: dict[int, Callable[[], Any]] = {}

    @property
    def port(self) -> int:
        """Where tasks send their number to."""
        return int(self._socket.getsockname()[1])

    def listen(self) -> None:
        """Starts a thread for blocking clients."""
        threading.Thread(target=self._hear, daemon=True).start()

    def listen_in_loop(self) -> None:
        """Listens in the running loop."""
        self._socket.setblocking(False)
        asyncio.get_running_loop().add_reader(self._socket, self._drain)

    def expect(self, n: int, told: Callable[[], Any]) -> None:
        """Calls `told` when unit `n` ran."""
        self._waiting[n] = told

    def event(self, n: int) -> threading.Event:
        """Set when unit `n` ran; for blocking clients."""
        told = threading.Event()
        self._waiting[n] = told.set
        return told

    def future(self, n: int) -> asyncio.Future[None]:
        """Done when unit `n` ran; for clients with a loop."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[n] = partial(told.set_result, None)
        return told

    def _hear(self) -> None:
        while True:
            self._tell(self._socket.recv(64))

    def _drain(self) -> None:
        while True:
            try:
                self._tell(self._socket.recv(64))
            except BlockingIOError:
                return

    def _tell(self, data: bytes) -> None:
        told = self._waiting.pop(int(data), None)
        if told is not None:
            told()


_SENDER = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def tell(port: int, n: int) -> None:
    """The body of a peer's task: says that unit `n` ran."""
    _SENDER.sendto(b"%d" % n, ("127.0.0.1", port))
