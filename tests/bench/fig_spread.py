"""The same work on one server and on a cluster of three: commands per mutation, and how evenly keys and work spread.

Everything here is counted, not timed, so it may run on a busy machine.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ledger.admission import AdmissionLimits, admit_delivery
from ledger.config import RedisConfig
from ledger.store import AsyncStore, StoreSettings
from tests.bench.contestants import HOME
from tests.bench.drivers import DriverFailed
from tests.bench.measure import Figure, Goal, Options, plain, say
from tests.bench.own import CONFIG, ENVIRONMENT, delivery, limits, policy_of
from tests.bench.server import SCRIPTS, BenchStore
from tests.support.cluster import ValkeyCluster
from tests.support.stack import Stack
from tests.support.valkey import ValkeyProcess

SHARDS = 64
SESSIONS, MUTATIONS = 600, 6000
MASTERS = 3
AT_ONCE = 64
LIMIT_SECONDS = 300.0


def spread_figures(_: Options) -> Iterator[Figure]:
    """Scripts per mutation on three servers against one, and the busiest server's and shard's share of the work."""
    with tempfile.TemporaryDirectory(dir=HOME / "run") as scratch:
        folder = Path(scratch)
        with BenchStore(folder / "one") as store:
            alone = _work(folder / "alone", store.url, [store.process])
        with ValkeyCluster(folder / "cluster", masters=MASTERS) as cluster:
            spread = _work(folder / "spread", cluster.url, cluster.masters)
            keys = [int(_client(server).dbsize()) for server in cluster.masters]
            shards = _per_shard(cluster)
    yield plain(Figure("spread alone", "scripts per mutation on one server", None, "scripts"), [sum(alone)])
    per = Figure("spread scripts", "scripts per mutation on three servers against one", Goal(1.05, at_most=True))
    per.notes = {"per_server": spread}
    yield plain(per, [sum(spread) / sum(alone)])
    yield _share("spread work", "the busiest server's work against an even share", spread)
    yield _share("spread keys", "the fullest server's keys against an even share", keys)
    busiest = Figure("spread shards", "the busiest shard's mutations against an even share", None)
    busiest.notes = {"mutations_per_shard": shards}
    yield plain(busiest, [max(shards) * len(shards) / sum(shards)])


def _share(name: str, title: str, parts: Sequence[float]) -> Figure:
    figure = Figure(name, title, Goal(1.25, at_most=True))
    figure.notes = {"per_server": list(parts)}
    return plain(figure, [max(parts) * len(parts) / sum(parts)])


def _work(folder: Path, url: str, servers: Sequence[ValkeyProcess]) -> list[float]:
    """Scripts per mutation on each server, admission included, with one worker."""
    config = f"{CONFIG}[redis]\nshards = {SHARDS}\n"
    with Stack(folder, url, config, env=ENVIRONMENT) as stack:
        stack.add_worker()
        before = [_scripts(server) for server in servers]
        asyncio.run(_admit(url, limits(policy_of(stack.config))))
        _until(servers)
        return [(_scripts(server) - was) / MUTATIONS for server, was in zip(servers, before, strict=True)]


async def _admit(url: str, bounds: AdmissionLimits) -> None:
    store = AsyncStore(StoreSettings(RedisConfig(url=url, shards=SHARDS), client_name="bench"))
    await store.open()
    numbers = itertools.count()
    left = iter(range(MUTATIONS))

    async def lane() -> None:
        for n in left:
            made = delivery(f"spread-{n % SESSIONS}", next(numbers))
            await store.run(admit_delivery(made, bounds, SHARDS))

    await asyncio.gather(*(lane() for _ in range(AT_ONCE)))
    await store.close()


def _until(servers: Sequence[ValkeyProcess]) -> None:
    """Waits until every mutation has its outcome."""
    end = time.monotonic() + LIMIT_SECONDS
    while (found := sum(sum(_lengths(server).values()) for server in servers)) < MUTATIONS:
        if time.monotonic() > end:
            raise DriverFailed(f"{found} of {MUTATIONS} mutations were settled in {LIMIT_SECONDS:g} s")
        time.sleep(0.2)
    say(f"  {MUTATIONS:,} mutations of {SESSIONS} sessions in {SHARDS} shards on {len(servers)} server(s)")


def _lengths(server: ValkeyProcess) -> dict[str, int]:
    """Outcomes by shard, of the shards that this server holds."""
    client = _client(server)
    return {key.decode(): int(client.xlen(key)) for key in client.keys("ml:{*}:outcomes")}


def _per_shard(cluster: ValkeyCluster) -> list[int]:
    found = [length for server in cluster.masters for length in _lengths(server).values()]
    return sorted(found, reverse=True) + [0] * (SHARDS - len(found))


def _scripts(server: ValkeyProcess) -> int:
    stats = _client(server).info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in SCRIPTS)


def _client(server: ValkeyProcess) -> Any:
    return server.client()
