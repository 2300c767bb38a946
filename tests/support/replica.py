"""A replica with an AOF of its own, in step with a server; it can be frozen and thawed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until


@contextmanager
def replica_of(server: ValkeyProcess, directory: Path) -> Iterator[ValkeyProcess]:
    """A replica that confirms what `server` writes."""
    master: Any = server.client()
    master.config_set("repl-diskless-sync-delay", 0)
    replica = ValkeyProcess(directory)
    with replica.serving():
        client: Any = replica.client()
        client.replicaof("127.0.0.1", server.port)
        wait_until(lambda: client.info("replication")["master_link_status"] == "up", 30, "the replica to be in step")
        wait_until(lambda: _confirms(master), 30, "the replica's confirmations")
        yield replica


@contextmanager
def frozen(replica: ValkeyProcess) -> Iterator[None]:
    """The replica confirms nothing inside the block."""
    os.kill(replica.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: _stopped(replica.pid), 10, "every thread of the replica to be frozen")
        yield
    finally:
        os.kill(replica.pid, signal.SIGCONT)


def _stopped(pid: int) -> bool:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)


def _confirms(master: Any) -> bool:
    master.incr("{touch}")
    return bool(master.execute_command("WAITAOF", 0, 1, 100)[1] == 1)
