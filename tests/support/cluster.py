"""A real cluster for tests: Valkey processes on loopback, each a master of its part of the slots, or a replica."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redis.crc import key_slot

from tests.support.valkey import ValkeyProcess, free_port
from tests.support.wait import wait_until

SLOTS = 16_384
# Failover within a second or two; the server's default of 15 s is for networks that this is not.
NODE_TIMEOUT_MS = "1000"


class ValkeyCluster:
    """`masters` servers, and `replicas` of each with replicas' AOF on too. Everything durable as in DURABLE."""

    def __init__(
        self, directory: Path, *, masters: int = 3, replicas: int = 0, settings: Mapping[str, str] | None = None
    ) -> None:
        count = masters * (1 + replicas)
        self.servers = [
            ValkeyProcess(
                directory / f"node-{number}",
                settings={
                    "cluster-enabled": "yes",
                    "cluster-port": str(free_port()),
                    "cluster-node-timeout": NODE_TIMEOUT_MS,
                    "cluster-replica-validity-factor": "0",
                    "repl-diskless-sync-delay": "0",
                    **(settings or {}),
                },
            )
            for number in range(count)
        ]
        self.masters = self.servers[:masters]
        self.replicas = self.servers[masters:]

    @property
    def url(self) -> str:
        """The address for the ledger: every node is named."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def __enter__(self) -> ValkeyCluster:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops every server."""
        for server in self.servers:
            server.stop()

    def owner(self, key: str) -> ValkeyProcess:
        """The server that owns a key now, by what a living node says."""
        slot = key_slot(key.encode())
        asked: Any = next(server for server in self.servers if server.running).client(protocol=2)
        for first, last, primary, *_ in asked.execute_command("CLUSTER", "SLOTS", NEVER_DECODE=[]):
            if first <= slot <= last:
                return next(server for server in self.servers if server.port == int(primary[1]))
        raise AssertionError(f"nobody owns slot {slot}")

    def keys(self, pattern: str) -> list[bytes]:
        """Keys of all masters that run."""
        found: list[bytes] = []
        for server in self.servers:
            if server.running:
                client: Any = server.client()
                if client.info("replication")["role"] == "master":
                    found += client.keys(pattern)
        return found

    def _start(self) -> None:
        for server in self.servers:
            server.start()
        first: Any = self.masters[0].client()
        share = SLOTS // len(self.masters)
        for number, server in enumerate(self.masters):
            client: Any = server.client()
            last = SLOTS - 1 if server is self.masters[-1] else (number + 1) * share - 1
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", number * share, last)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for server in self.servers[1:]:
            first.execute_command("CLUSTER", "MEET", "127.0.0.1", server.port, server.settings["cluster-port"])
        wait_until(self._all_know_all, 20, "the nodes to meet")
        for number, server in enumerate(self.replicas):
            master: Any = self.masters[number % len(self.masters)].client()
            replica: Any = server.client()
            replica.execute_command("CLUSTER", "REPLICATE", master.execute_command("CLUSTER", "MYID"))
        wait_until(self.is_whole, 20, "the cluster to be whole")

    def _all_know_all(self) -> bool:
        return all(_info(server)["cluster_known_nodes"] == str(len(self.servers)) for server in self.servers)

    def is_whole(self) -> bool:
        """Whether every slot is served and every master's replicas are in step; masters as they are now."""
        if not all(_info(server)["cluster_state"] == "ok" for server in self.servers):
            return False
        wanted = len(self.replicas) // len(self.masters)
        masters = [server for server in self.servers if _is_master(server)]
        return len(masters) == len(self.masters) and all(_online(server) == wanted for server in masters)


def _info(server: ValkeyProcess) -> dict[str, str]:
    client: Any = server.client()
    info: dict[str, str] = client.execute_command("CLUSTER INFO")
    return info


def _is_master(server: ValkeyProcess) -> bool:
    client: Any = server.client()
    return bool(client.info("replication")["role"] == "master")


def _online(server: ValkeyProcess) -> int:
    client: Any = server.client()
    info = client.info("replication")
    return sum(info[name]["state"] == "online" for name in info if name.startswith("slave") and name[5:].isdigit())
