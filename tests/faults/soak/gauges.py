"""What must stay flat: memory, open files, the age of what waits; read from /proc and from the store."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from tests.support.checker import SHARDS

PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Sample:
    """One look: bytes, counts, and `mutations` that had an outcome by then.

    `queue_age` in seconds: how long the session that waits longest has been ready.
    """

    at: float
    mutations: int
    store_bytes: int
    worker_bytes: int
    worker_files: int
    door_bytes: int
    door_files: int
    store_files: int
    rq_keys: int
    queue_age: float


def family(pid: int) -> list[int]:
    """A process and its children."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return [pid]
    return [pid, *map(int, children)]


def resident(pids: Iterable[int]) -> int:
    """Bytes in memory that are the processes' own."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        total += (int(fields[1]) - int(fields[2])) * PAGE
    return total


def open_files(pids: Iterable[int]) -> int:
    """File descriptors, connections included."""
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)


def queue_age(client: Any) -> float:
    """Seconds since the session that waits longest became ready; 0 if none waits."""
    pipe = client.pipeline(transaction=False)
    for shard in range(SHARDS):
        pipe.zrange(f"ml:{{{shard:02x}}}:ready", 0, 0, withscores=True)
    pipe.time()
    *heads, (seconds, micros) = pipe.execute()
    now = seconds * 1000 + micros / 1000
    return max((now - head[0][1] for head in heads if head), default=0.0) / 1000


def look(client: Any, mutations: int, worker: int, door: int, store: int) -> Sample | None:
    """One sample of the processes that live through the whole soak; None while the store is away."""
    workers, doors = family(worker), family(door)
    try:
        memory = client.info("memory")
        # What clients and buffers take comes and goes.
        held = int(memory["used_memory_dataset"])
        keys = sum(1 for _ in client.scan_iter("{rq}*", count=1000))
        age = queue_age(client)
    except redis.RedisError:
        return None
    return Sample(
        time.monotonic(),
        mutations,
        held,
        resident(workers),
        open_files(workers),
        resident(doors),
        open_files(doors),
        open_files([store]),
        keys,
        age,
    )
