"""Row 15: a replica is promoted, with or without all that was acknowledged; the store is emptied or put back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ledger.acceptance import accept_store
from ledger.config import RedisConfig
from ledger.store import StoreSettings
from tests.faults.harness.tally import Tally
from tests.faults.harness.traffic import Traffic
from tests.faults.harness.world import World
from tests.support.proxy import TcpProxy
from tests.support.stack import Api
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

WITH_REPLICA = "[redis]\naof_replicas = 1\n"


def _replica_of(server: ValkeyProcess, directory: Path) -> ValkeyProcess:
    """A replica in step with the server, its own AOF included."""
    replica = ValkeyProcess(directory)
    replica.start()
    _follow(replica, server)
    return replica


def _follow(replica: ValkeyProcess, server: ValkeyProcess) -> None:
    master: Any = server.client()
    master.config_set("repl-diskless-sync-delay", 0)
    client: Any = replica.client()
    client.replicaof("127.0.0.1", server.port)
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
    """Row 15 with `aof_replicas = 1`: the master dies, the replica takes over, and nothing acknowledged is missing."""
    with World(folder, seed, redis=WITH_REPLICA) as world, TcpProxy(world.valkey.port) as proxy:
        master, replica = world.valkey, _replica_of(world.valkey, folder / "replica-0")
        world.start(workers=2, through=proxy.url)
        traffic = world.traffic()
        try:
            for number in range(rounds):
                _work(world, 15)
                master.kill9()
                world.count("promotion")
                replica.client().replicaof("NO", "ONE")
                proxy.store_port = replica.port
                proxy.cut()
                world.move_to(replica)
                world.check(ended=False)
                master = replica
                replica = _replica_of(master, folder / f"replica-{number + 1}")
                wait_until(lambda: world.api.get("/readyz").status == 200, 30, "the front door to be ready")
            _work(world, 5)
            traffic.finish()
            world.check(ended=True)
            return Tally.of(world)
        finally:
            replica.stop()
            master.stop()


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
