"""Front doors and workers as real processes on one store, for acceptance and fault tests."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger.long_integers import read_json, write_json
from ledger.supervise.child import command_line
from tests.support.valkey import free_port
from tests.support.wait import wait_until

AGENT, APPROVER, READER, OTHER = "agent-token-1", "approver-token-1", "reader-token-1", "other-token-1"
_TOKENS: dict[str, dict[str, Any]] = {
    AGENT: {"name": "agent", "roles": ["trigger", "read", "host", "ops"], "act_for_users": True},
    APPROVER: {"name": "bob", "roles": ["approve", "read"]},
    READER: {"name": "reader", "roles": ["read"]},
    OTHER: {"name": "stranger", "tenant": "globex", "roles": ["trigger", "read", "host", "approve"]},
}


def token_section() -> str:
    """`[[tokens]]` of the four principals above; all but OTHER in tenant `acme`."""
    parts = []
    for token, fields in _TOKENS.items():
        lines = {"tenant": "acme", "sha256": hashlib.sha256(token.encode()).hexdigest(), **fields}
        parts.append("[[tokens]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items()))
    return "\n".join(parts)


def dashboards_section(*, human: str | None = None) -> str:
    """The sample server over stdio with `create`, `create_slow` and `patch` protected."""
    command = json.dumps([sys.executable, "-m", "workers.samples.dashboards"])
    level = f'human = "{human}"\n' if human else ""
    tools = "".join(f"[mcp.servers.dashboards.tools.{tool}]\n{level}" for tool in ("create", "create_slow", "patch"))
    mutation_tools = (
        "" if human else '[policy]\nmutation_tools = ["mcp__dashboards__create", "mcp__dashboards__create_slow"]\n'
    )
    return (
        f'[mcp.servers.dashboards]\ncommand = {command}\nenv = {{ DASHBOARDS_FILE = "env:DASHBOARDS_FILE" }}\n'
        f"{tools}[mcp.servers.dashboards.tools.list]\nread_only = true\n{mutation_tools}"
    )


def native_section() -> str:
    """The counted native tools of `tests.support.effect_tools`: all but `look` are protected."""
    return '[plugins]\nmodules = ["tests.support.effect_tools"]\n'


def quick_section(*, lease: float = 2.0, linger: float = 2.0, **timing: float) -> str:
    """Short leases and waits, so that what a dead worker left is found soon."""
    lines = {"lease_seconds": lease, "cancel_drain_seconds": 1.0, **timing}
    text = "".join(f"{name} = {value}\n" for name, value in lines.items())
    return f"[timing]\n{text}[workers]\nlinger_seconds = {linger}\n"


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer; `body` is parsed JSON where it is JSON, else bytes."""

    status: int
    body: Any
    headers: Mapping[str, str]


class Api:
    """A front door over HTTP, one connection a call; no retries."""

    def __init__(self, port: int, token: str = AGENT, *, timeout: float = 75.0) -> None:
        self.port = port
        self.token = token
        self.timeout = timeout

    def as_(self, token: str) -> Api:
        """The same front door with another token."""
        return Api(self.port, token, timeout=self.timeout)

    def get(self, path: str, **headers: str) -> Reply:
        """GET."""
        return self.request("GET", path, None, headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Reply:
        """POST of a JSON value, or of bytes as they are."""
        return self.request("POST", path, body, headers)

    def request(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Reply:
        """Any request. `headers` names use underscores for dashes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        data = body if isinstance(body, bytes) or body is None else write_json(body, json.JSONEncoder()).encode()
        sent = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            raw = response.read()
        finally:
            connection.close()
        is_json = (
            "json" in (response.headers.get("Content-Type") or "") and "ndjson" not in response.headers["Content-Type"]
        )
        return Reply(response.status, read_json(raw) if is_json and raw else raw, dict(response.headers))

    def trigger(self, session: str, delivery: str, calls: list[tuple[str, dict[str, Any]]], **more: Any) -> Reply:
        """POST /api/trigger with plan calls; `wait` goes into the query."""
        wait = more.pop("wait", None)
        body = {
            "session_id": session,
            "agent": "ops",
            "user": "dana",
            "delivery_id": delivery,
            "calls": [{"tool": tool, "arguments": arguments} for tool, arguments in calls],
            **more,
        }
        return self.post("/api/trigger" + (f"?wait={wait}" if wait is not None else ""), body)

    def outcomes(self, session: str) -> list[dict[str, Any]]:
        """The session's published outcomes."""
        found: list[dict[str, Any]] = self.get(f"/api/mutation-outcomes?session_id={session}").body["mutation_outcomes"]
        return found

    def pending(self) -> list[dict[str, Any]]:
        """The approver's inbox."""
        found: list[dict[str, Any]] = self.as_(APPROVER).get("/api/approvals").body["approvals"]
        return found

    def run(self, run_id: str) -> dict[str, Any]:
        """A run as its callers see it."""
        reply = self.get(f"/api/runs/{run_id}")
        assert reply.status == 200, reply
        found: dict[str, Any] = reply.body
        return found

    def ended(self, run_id: str, timeout: float = 20.0) -> dict[str, Any]:
        """The run once it has ended."""
        seen: dict[str, Any] = {}

        def over() -> bool:
            seen.update(self.run(run_id))
            return seen["status"] in ("completed", "failed", "cancelled")

        wait_until(over, timeout, f"run {run_id} to end")
        return seen

    def approve(self, approval_id: str) -> Reply:
        """The approver says yes."""
        return self.as_(APPROVER).post(f"/api/approvals/{approval_id}", {"decision": "approve"})


class Stack:
    """Processes started with `mutation-ledger serve` and `worker` on the store at `store_url`."""

    def __init__(self, directory: Path, store_url: str, config: str, *, env: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.store_url = store_url
        directory.mkdir(parents=True, exist_ok=True)
        self.config = directory / "mutation-ledger.toml"
        self.config.write_text(f"{config}\n{token_section()}", encoding="utf-8")
        self.effects_file = directory / "effects.jsonl"
        self.front_doors: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self.ports: list[int] = []
        self.env = {
            **os.environ,
            "DASHBOARDS_FILE": str(self.effects_file),
            "EFFECTS_FILE": str(self.effects_file),
            "PYTHONPATH": str(Path(__file__).parents[2]),
            **(env or {}),
        }

    def __enter__(self) -> Stack:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        self.stop()
        if failed is not None:
            print(self.logs())

    def add_front_door(self, *, store_url: str | None = None, ready: bool = True) -> Api:
        """Starts one front door, on another store address if given, and waits until it is ready, or only alive."""
        port = free_port()
        process = self._start(f"serve-{port}", ["serve", "--port", str(port)], store_url)
        self.front_doors.append(process)
        self.ports.append(port)
        api, probe = Api(port), "/readyz" if ready else "/livez"
        wait_until(lambda: process.poll() is not None or self._answers(api, probe), 30, f"front door on {port}")
        assert process.poll() is None, (self.directory / f"serve-{port}.log").read_text()[-2000:]
        return api

    def add_worker(
        self, *, store_url: str | None = None, options: Sequence[str] = (), wait: bool = True
    ) -> subprocess.Popen[bytes]:
        """Starts one worker process and waits until its loop runs, unless told not to."""
        name = f"worker-{len(self.workers)}-{time.monotonic_ns()}"
        process = self._start(name, ["worker", *options], store_url)
        self.workers.append(process)
        if not wait:
            return process
        log = self.directory / f"{name}.log"
        wait_until(lambda: b"worker_started" in log.read_bytes() or process.poll() is not None, 30, "worker start")
        assert process.poll() is None, log.read_text()[-2000:]
        return process

    def launch(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        """Starts a command of the program and leaves the rest to the caller."""
        return self._start(name, arguments, None)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL, and forget it."""
        process.kill()
        process.wait(10)
        self.workers = [other for other in self.workers if other is not process]
        self.front_doors = [other for other in self.front_doors if other is not process]

    def kill_group(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL to a process and its children at once: a front door's are the ones that answer."""
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for pid in (process.pid, *map(int, children)):
            # One that was to die at a point may have done so in between.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM to all, then SIGKILL to what stays."""
        running = [*self.front_doors, *self.workers]
        for process in running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in running:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)

    def logs(self) -> str:
        """Everything the processes wrote."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.directory.glob("*.log")))

    def effects(self) -> list[dict[str, Any]]:
        """The sample server's own record of what it did, in order."""
        if not self.effects_file.exists():
            return []
        return [read_json(line) for line in self.effects_file.read_text(encoding="utf-8").splitlines()]

    def _start(self, name: str, arguments: list[str], store_url: str | None) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "ledger.cli", *arguments, "--config", str(self.config)]
        command += ["--data", str(self.directory / "data")]
        env = {**self.env, "MUTATION_LEDGER__REDIS__URL": store_url or self.store_url}
        with (self.directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command_line(command), env=env, stdout=log, stderr=log)

    @staticmethod
    def _answers(api: Api, probe: str) -> bool:
        try:
            return Api(api.port, timeout=2.0).get(probe).status == 200
        except OSError:
            return False
