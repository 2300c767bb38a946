"""`up`: embedded store, front door and workers on one machine, as one thing to start and stop."""

from __future__ import annotations

import errno
import http.client
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ledger.embedded import EmbeddedStore
from ledger.errors import LedgerError
from ledger.supervise.process import Child, ProcessChild
from ledger.supervise.supervisor import Supervisor

HOST = "127.0.0.1"
BIND_SECONDS = 10.0
HEALTH_SECONDS = 1.0
# A slow disk stalls a store with fsync always for seconds; only far beyond that is it stuck.
HUNG_SECONDS = 60.0
# What a process may take beyond its drain to settle, release and exit.
GRACE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What `up` runs. `redis_url` None: the embedded store. Commands are argv without the settings."""

    data_dir: Path
    port: int
    workers: int
    serve: Sequence[str]
    worker: Sequence[str]
    redis_url: str | None = None
    stop_drain_seconds: float = 60.0


class StoreChild:
    """The embedded store as a supervised child, with a PING every second."""

    name = "store"
    stop_seconds = GRACE_SECONDS

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self._asked_at = self._heard_at = time.monotonic()

    def launch(self) -> None:
        """Start the server again on the same address and data."""
        self._store.launch()
        self._heard_at = time.monotonic()

    def exit_code(self) -> int | None:
        """None while the server runs."""
        return self._store.exit_code()

    def terminate(self) -> None:
        """SIGTERM: the server flushes its AOF and ends."""
        self._store.terminate()

    def kill(self) -> None:
        """SIGKILL; the AOF is complete all the same."""
        self._store.kill()

    def hung(self) -> bool:
        """Whether the server has said nothing for a minute; asks it at most once a second."""
        now = time.monotonic()
        if now - self._asked_at >= HEALTH_SECONDS:
            self._asked_at = now
            if self._store.health(timeout=HEALTH_SECONDS) != "silent":
                self._heard_at = now
        return now - self._heard_at > HUNG_SECONDS


def run(plan: Plan, *, say: Callable[[str], None], ready: Callable[[str], None]) -> None:
    """Run `plan` until a signal. `say` gets lines for people, `ready` the console's URL once it answers.

    Raises LedgerError if the port stays taken for 10 s, and what EmbeddedStore.start raises.
    """
    wait_for_port(plan.port, say)
    store = EmbeddedStore(plan.data_dir) if plan.redis_url is None else None
    try:
        url = store.start() if store is not None else str(plan.redis_url)
        groups: list[list[Child]] = [[StoreChild(store)]] if store is not None else []
        groups += _clients(plan, url)
        Supervisor(groups, say=say, each_tick=_announcer(plan.port, ready)).run()
    finally:
        if store is not None:
            store.stop()


def wait_for_port(port: int, say: Callable[[str], None], *, seconds: float = BIND_SECONDS) -> None:
    """Return once the loopback port can be bound; raises LedgerError if it cannot within `seconds`.

    `say` is told once if it has to wait.
    """
    end = time.monotonic() + seconds
    told = False
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise LedgerError(f"port {port} cannot be used: {error.strerror}; give another --port") from None
            else:
                return
        if time.monotonic() >= end:
            raise LedgerError(f"port {port} has been in use for {seconds:g} s; free it or give another --port")
        if not told:
            told = True
            say(f"port {port} is in use; waiting up to {seconds:g} s for it")
        time.sleep(0.1)


def _clients(plan: Plan, url: str) -> list[list[Child]]:
    # By environment: the URL may hold a password, and command lines are public on a machine.
    env = {"MUTATION_LEDGER__REDIS__URL": url, "MUTATION_LEDGER__SERVICE__PORT": str(plan.port)}
    stop = plan.stop_drain_seconds + GRACE_SECONDS
    workers: list[Child] = [
        ProcessChild(f"worker {number}", plan.worker, env=env, stop_seconds=stop)
        for number in range(1, plan.workers + 1)
    ]
    return [workers, [ProcessChild("front door", plan.serve, env=env, stop_seconds=stop)]]


def _announcer(port: int, ready: Callable[[str], None]) -> Callable[[], None]:
    """A tick that calls `ready` once, as soon as the front door answers anything over HTTP."""
    told = False

    def tick() -> None:
        nonlocal told
        if told:
            return
        connection = http.client.HTTPConnection(HOST, port, timeout=0.5)
        try:
            connection.request("GET", "/livez")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return
        finally:
            connection.close()
        told = True
        ready(f"http://{HOST}:{port}/")

    return tick
