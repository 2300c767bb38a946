"""Row 15: a replica is promoted, with or without all that was acknowledged; the store is emptied or put back."""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ledger.acceptance import accept_store
from ledger.config import RedisConfig
from ledger.store import StoreSettings
from ledger.store.wire import seq_key
from tests.faults.harness.tally import Tally
from tests.faults.harness.traffic import Traffic
from tests.faults.harness.world import World
from tests.support.checker import SHARDS
from tests.support.cluster import ValkeyCluster
from tests.support.proxy import TcpProxy
from tests.support.stack import Api
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

HELD_SECONDS = 0.6
WITH_REPLICA = "[redis]\naof_replicas = 1\n"


def _replica_of(server: ValkeyProcess, directory: Path, port: int = 0) -> ValkeyProcess:
    """A replica in step with the server, its own AOF included; it reaches the server at `port`, if given."""
    replica = ValkeyProcess(directory)
    replica.start()
    _follow(replica, server, port)
    return replica


def _follow(replica: ValkeyProcess, server: ValkeyProcess, port: int = 0) -> None:
    master: Any = server.client()
    master.config_set("repl-diskless-sync-delay", 0)
    client: Any = replica.client()
    client.replicaof("127.0.0.1", port or server.port)
    wait_until(lambda: client.info("replication")["master_link_status"] == "up", 30, "the replica to be in step")
    wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"], 30, "the replica's AOF")
    wait_until(lambda: master.execute_command("WAITAOF", 0, 1, 100)[1] == 1 or _touch(master), 30, "its confirmations")


def _touch(master: Any) -> bool:
    master.incr("{touch}")
    return False


def _work(world: World, calls: int) -> None:
    wanted = world.mutations() + calls
    wait_until(lambda: world.mutations() >= wanted, 60, "calls to be made")


def promote_in_step(folder: Path, seed: int, rounds: int = 2) -> Tally:
    """Row 15 with `aof_replicas = 1`: the master dies, the replica takes over, and nothing acknowledged is missing.

    For a moment before that the replica gets nothing: what would be acknowledged then would be lost.
    """
    with (
        World(folder, seed, redis=WITH_REPLICA) as world,
        TcpProxy(world.valkey.port) as proxy,
        contextlib.ExitStack() as links,
    ):
        master = world.valkey
        link = links.enter_context(TcpProxy(master.port))
        replica = _replica_of(master, folder / "replica-0", link.port)
        world.start(workers=2, through=proxy.url)
        traffic = world.traffic()
        try:
            for number in range(rounds):
                _work(world, 15)
                with link.black_hole():
                    _wait(HELD_SECONDS)
                    master.kill9()
                    world.count("promotion")
                    replica.client().replicaof("NO", "ONE")
                    proxy.store_port = replica.port
                    proxy.cut()
                world.move_to(replica)
                world.check(ended=False)
                master = replica
                link = links.enter_context(TcpProxy(master.port))
                replica = _replica_of(master, folder / f"replica-{number + 1}", link.port)
                wait_until(lambda: world.api.get("/readyz").status == 200, 30, "the front door to be ready")
            _work(world, 5)
            traffic.finish()
            world.check(ended=True)
            return Tally.of(world)
        finally:
            replica.stop()
            master.stop()


def _wait(seconds: float) -> None:
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= end, seconds + 5, "a moment without the replica")


def _is_refused(api: Api) -> bool:
    reply = api.trigger("refused", "refused", [("act", {"id": "refused"})])
    return reply.status == 503 and reply.body["code"] == "store_went_back"


def _accepted_only_by_a_person(world: World, url: str, traffic: Traffic) -> None:
    """Until the store is accepted nothing is promised and no tool is entered; afterwards new work is done."""
    wait_until(lambda: _is_refused(world.api), 15, "the front door to refuse the store")
    with world.doubt(grace=1.0):
        if world.api.get("/readyz").body["code"] != "store_went_back":
            world.violations.append("I8: /readyz does not say that the store went back")
        gone_by = wait_until(lambda: "store_went_back" in world.stack.logs(), 10, "the workers to notice")
        assert gone_by
        quiet = world.mutations()
        for _ in range(20):
            _is_refused(world.api)
    if world.mutations() > quiet + 4:
        world.violations.append(f"I8: {world.mutations() - quiet} calls were made on a refused store")
    traffic.stop()
    accept_store(StoreSettings(RedisConfig(url=url)))
    wait_until(lambda: world.api.get("/readyz").status == 200, 20, "the front door to be ready again")
    done = world.api.trigger("accepted", f"d-{url[-6:]}", [("act", {"id": "accepted"})], wait=20)
    if done.body.get("status") != "completed":
        world.violations.append(f"I4: after the store was accepted a delivery is {done.body.get('status')}")


def go_back(folder: Path, seed: int, how: str) -> Tally:
    """Row 15: `missed` a promoted replica lacks the last writes, `emptied` by FLUSHALL, `older` an old AOF is put back.

    What the store lost cannot be told; what may be asked is that nothing is promised or entered until a person agrees.
    """
    with World(folder, seed) as world, TcpProxy(world.valkey.port) as proxy:
        replica = _replica_of(world.valkey, folder / "replica")
        try:
            world.start(workers=2, read=False, through=proxy.url)
            traffic = world.traffic(handlers=False)
            _work(world, 10)
            world.count(how)
            url = HOW[how](world, proxy, replica)
            _accepted_only_by_a_person(world, url, traffic)
            world.judge_effects()
            return Tally.of(world)
        finally:
            replica.stop()


def _missed(world: World, proxy: TcpProxy, replica: ValkeyProcess) -> str:
    replica.client().replicaof("NO", "ONE")
    _work(world, 10)
    world.valkey.kill9()
    proxy.store_port = replica.port
    proxy.cut()
    return replica.url


def _emptied(world: World, _proxy: TcpProxy, _replica: ValkeyProcess) -> str:
    world.valkey.client().flushall()
    return world.valkey.url


def _older(world: World, _proxy: TcpProxy, _replica: ValkeyProcess) -> str:
    backup = world.folder / "backup"
    shutil.copytree(world.valkey.directory / "appendonlydir", backup)
    _work(world, 10)
    world.valkey.kill9()
    shutil.rmtree(world.valkey.directory / "appendonlydir")
    shutil.copytree(backup, world.valkey.directory / "appendonlydir")
    world.valkey.start()
    return world.valkey.url


HOW: dict[str, Callable[[World, TcpProxy, ValkeyProcess], str]] = {
    "missed": _missed,
    "emptied": _emptied,
    "older": _older,
}


def promote_in_cluster(folder: Path, seed: int, rounds: int = 2) -> Tally:
    """Row 15 on a cluster of three masters with a replica each: a master dies, its replica is elected, nothing is lost.

    The dead one comes back as a replica; until then its shards promise nothing.
    """
    dice = random.Random(seed)
    recovered: list[float] = []
    with (
        ValkeyCluster(folder / "cluster", masters=3, replicas=1) as cluster,
        World(folder, seed, url=cluster.url, redis=WITH_REPLICA) as world,
    ):
        world.histories = [server.directory for server in cluster.servers]
        world.start(workers=2)
        traffic = world.traffic()
        for _ in range(rounds):
            _work(world, 15)
            shard = dice.randrange(SHARDS)
            victim = cluster.owner(seq_key(shard))
            began = time.monotonic()
            victim.kill9()
            world.count("promotion")
            wait_until(lambda: cluster.owner(seq_key(shard)) is not victim, 30, "a replica to be elected")  # noqa: B023  # asked before the next round
            victim.start()
            wait_until(lambda: world.api.get("/readyz").status == 200, 30, "the front door to be ready")
            wait_until(cluster.is_whole, 30, "the dead master to be a replica in step")
            _work(world, 10)
            recovered.append(round(time.monotonic() - began, 1))
            world.check(ended=False)
        traffic.finish()
        world.check(ended=True)
        return Tally.of(world, recovery_seconds=recovered)
