"""B1 and B5: the worker alone. Deliveries are admitted while it stands still; then it runs and is timed by the store.

The clock starts when the worker may go on and ends with the id of the last outcome, both by the store's own time.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis.exceptions import ResponseError

from ledger.admission import AdmissionLimits, admit_delivery
from tests.bench.drivers import DriverFailed, Slice
from tests.bench.own import Sessions, delivery, opened
from tests.bench.server import BenchStore

SHARDS = 16
SESSIONS = 1000
POLL_SECONDS = 0.02
LIMIT_SECONDS = 120.0
AT_ONCE = 256


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads of a process."""
    spent = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        spent += int((thread / "schedstat").read_text().split()[0])
    return spent / 1e9


class WorkerPath:
    """Loads a store with work for one worker process, then lets it run."""

    def __init__(self, store: BenchStore, worker: int, limits: AdmissionLimits) -> None:
        self._store = store
        self._worker = worker
        self._limits = limits
        self._numbers = itertools.count()
        self._sessions = Sessions(SESSIONS, "w")
        self.work = self._store.counters()
        """What the store did in the last slice, admission not included."""
        self.worker_cpu = 0.0
        """Seconds of processor time that the worker used in the last slice."""

    def slice(self, count: int, calls: int = 1, names: Iterator[str] | None = None) -> Slice:
        """`count` mutations in deliveries of `calls`, to fresh sessions or to those of `names`."""
        deliveries = count // calls
        with self._stopped():
            asyncio.run(
                self._admit(deliveries, calls, names or self._sessions.names(max(1, -(-deliveries // SESSIONS))))
            )
            before = self._published()
            counters, cpu = self._store.counters(), cpu_seconds(self._worker)
            began = self._time_ms()
        ended = self._until(before + deliveries * calls)
        self.work, self.worker_cpu = self._store.counters().since(counters), cpu_seconds(self._worker) - cpu
        return Slice(deliveries * calls, (ended - began) / 1000, 0.0, 0.0)

    async def _admit(self, count: int, calls: int, names: Iterator[str]) -> None:
        store = await opened(self._store.url)
        left = iter(range(count))

        async def lane() -> None:
            for _ in left:
                made = delivery(next(names), next(self._numbers), calls)
                await store.run(admit_delivery(made, self._limits, SHARDS))

        await asyncio.gather(*(lane() for _ in range(AT_ONCE)))
        await store.close()

    @contextmanager
    def _stopped(self) -> Iterator[None]:
        os.kill(self._worker, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._worker, signal.SIGCONT)

    def _time_ms(self) -> int:
        seconds, micros = self._store.client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def _published(self) -> int:
        """Outcomes ever published: turns that make room take theirs out of the stream again."""
        pipeline = self._store.client.pipeline(transaction=False)
        for shard in range(SHARDS):
            pipeline.xinfo_stream(f"ml:{{{shard:02x}}}:outcomes")
        told = pipeline.execute(raise_on_error=False)
        return sum(one["entries-added"] for one in told if not isinstance(one, ResponseError))

    def _until(self, wanted: int) -> int:
        """Waits for outcomes; answers when the last one was written, store ms."""
        end = time.monotonic() + LIMIT_SECONDS
        while (found := self._published()) < wanted:
            if time.monotonic() > end:
                raise DriverFailed(f"the worker settled {found} of {wanted} mutations in {LIMIT_SECONDS:g} s")
            time.sleep(POLL_SECONDS)
        last = 0
        for shard in range(SHARDS):
            rows = self._store.client.xrevrange(f"ml:{{{shard:02x}}}:outcomes", count=1)
            last = max([last, *(int(row[0].split(b"-")[0]) for row in rows)])
        return last
