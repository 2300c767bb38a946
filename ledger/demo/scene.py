"""What the story plays on: a stack started as anybody would, two principals, and the sample server's own file."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from ledger.client import Client
from ledger.config import RedisConfig
from ledger.consumer import FileCursorStore, OutcomeConsumer
from ledger.embedded import find_url
from ledger.errors import LedgerError
from ledger.history import read_session
from ledger.store import StoreSettings, SyncStore
from ledger.supervise.child import command_line
from ledger.tokens import new_token, token_hash

T = TypeVar("T")

LEASE_SECONDS = 3
TENANT = "demo"
START_SECONDS = 60.0
SHARDS = 16

_CONFIG = """
[redis]
shards = {shards}
[timing]
lease_seconds = {lease}
[mcp.servers.dashboards]
command = [{python}, "-m", "workers.samples.dashboards"]
env = {{ DASHBOARDS_FILE = {effects} }}
[mcp.servers.dashboards.tools.create]
human = "approve"
[mcp.servers.dashboards.tools.create_slow]
human = "approve"
[mcp.servers.dashboards.tools.list]
read_only = true
[[tokens]]
name = "ops-agent"
tenant = "demo"
sha256 = "{agent}"
roles = ["trigger", "read", "host", "approve"]
act_for_users = true
[[tokens]]
name = "bob"
tenant = "demo"
sha256 = "{approver}"
roles = ["approve", "read"]
"""


class StepFailed(LedgerError):
    """Something the demo promised was not seen."""

    code = "demo_failed"


def until(predicate: Callable[[], T | None], seconds: float, what: str) -> T:
    """The first true answer of `predicate` within `seconds`.

    Raises:
        StepFailed: the time is over.
    """
    end = time.monotonic() + seconds
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > end:
            raise StepFailed(f"waited {seconds:g} s for {what}")
        time.sleep(0.05)


class Scene:
    """The running stack. `directory` holds everything it writes."""

    def __init__(self, directory: Path, port: int | None = None) -> None:
        self.directory = directory
        self.port = port or _free_port()
        self.effects_file = directory / "dashboards.jsonl"
        self.config_file = directory / "mutation-ledger.toml"
        self.data_dir = directory / "data"
        self.cursor_file = directory / "outcomes.cursor"
        self.tokens = {"agent": new_token(), "approver": new_token()}
        self.agent = self._client("agent")
        self.approver = self._client("approver")
        self._up: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Writes the configuration, starts `up` with two workers and waits until it is ready."""
        text = _CONFIG.format(
            shards=SHARDS,
            lease=LEASE_SECONDS,
            python=json.dumps(sys.executable),
            effects=json.dumps(str(self.effects_file)),
            agent=token_hash(self.tokens["agent"]),
            approver=token_hash(self.tokens["approver"]),
        )
        self.config_file.write_text(text, encoding="utf-8")
        command = self.program("up", "--port", str(self.port), "--workers", "2")
        with (self.directory / "up.log").open("wb") as log:
            # A group of its own: a Ctrl-C at the terminal reaches the demo, which then stops this in order.
            self._up = subprocess.Popen(  # noqa: S603  a list from our own code, no shell
                command_line(command), stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        until(self._ready, START_SECONDS, f"the stack to start (see {self.directory / 'up.log'})")

    def stop(self) -> None:
        """SIGTERM, as an operator would; waits for the end."""
        if self._up is not None and self._up.poll() is None:
            self._up.send_signal(signal.SIGTERM)
            self._up.wait(90)

    def wait(self) -> None:
        """Waits until the stack is stopped by somebody else."""
        if self._up is not None:
            self._up.wait()

    def program(self, *arguments: str) -> list[str]:
        """The command line of `mutation-ledger` on this scene's configuration and data."""
        options = ["--config", str(self.config_file), "--data", str(self.data_dir)]
        return [sys.executable, "-m", "ledger.cli", *options, *arguments]

    def run_command(self, *arguments: str) -> Any:
        """Runs `mutation-ledger ... --json` and returns what it printed, parsed.

        Raises:
            StepFailed: it did not exit with 0.
        """
        done = subprocess.run(  # noqa: S603  a list from our own code, no shell
            [*self.program(*arguments), "--json"], capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode != 0:
            raise StepFailed(f"`mutation-ledger {arguments[0]}` exited {done.returncode}: {done.stderr.strip()[-300:]}")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def effects(self, mutation_id: str) -> int:
        """How often the tool server itself says that this mutation happened."""
        if not self.effects_file.exists():
            return 0
        lines = self.effects_file.read_text(encoding="utf-8").splitlines()
        return sum(json.loads(line)["mutation_id"] == mutation_id for line in lines)

    def owner_pid(self, session_id: str) -> int | None:
        """The worker process that owns the session now, from its fencing token (C-30)."""
        store = SyncStore(StoreSettings(RedisConfig(url=self._store_url(), shards=SHARDS)))
        try:
            session = store.run(read_session(TENANT, session_id, SHARDS))
        finally:
            store.close()
        if session is None or session.owner is None:
            return None
        return int(session.owner.split("-", 1)[1].split("x", 1)[0], 16)

    def read_stream(self) -> list[Any]:
        """Everything published since the saved cursor, which then moves on."""
        cursors = FileCursorStore(self.cursor_file)
        with OutcomeConsumer(self._store_url(), cursors, block_seconds=0.2) as consumer:
            return list(_flatten(consumer.batches(once=True)))

    def _store_url(self) -> str:
        url = find_url(self.data_dir)
        if url is None:
            raise StepFailed("the embedded store is not running")
        return url

    def _ready(self) -> bool:
        if self._up is not None and self._up.poll() is not None:
            raise StepFailed(f"`up` ended with {self._up.returncode}: see {self.directory / 'up.log'}")
        log = (self.directory / "up.log").read_bytes()
        return log.count(b"worker_started") >= 2 and b"console: " in log

    def _client(self, name: str) -> Client:
        return Client(f"http://127.0.0.1:{self.port}", self.tokens[name])


def kill_worker(pid: int) -> None:
    """SIGKILL to one process, named by pid."""
    os.kill(pid, signal.SIGKILL)


def fresh_session() -> str:
    """A session id that no earlier demo used."""
    return f"incident-{secrets.token_hex(3)}"


def _flatten(batches: Iterable[Iterable[Any]]) -> Iterable[Any]:
    for batch in batches:
        yield from batch


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
