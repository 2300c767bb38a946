"""A front door for tests: its configuration, Flask's client on it, the worker's side by hand, and real processes."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from ledger.attempts import Begun, Settlement, settle_attempt
from ledger.config import Config
from ledger.long_integers import write_json
from ledger.ownership import Claimed, claim_sessions
from ledger.states import MutationStatus
from ledger.supervise.child import command_line
from ledger.tokens import token_hash
from service.app import create_app
from service.door import EXTENSION, FrontDoor
from tests.support.valkey import free_port
from tests.support.wait import wait_until
from workers.settings import begin_policy

ASK = "mcp__d__create"
CONFIRM = "mcp__d__drop"
AUTO = "mcp__d__patch"
READ_ONLY = "mcp__d__list"
PLAIN = "mcp__d__touch"

_TOKENS: list[dict[str, Any]] = [
    {"name": "host", "tenant": "acme", "roles": ["trigger", "read", "host", "ops"], "act_for_users": True},
    {"name": "lone", "tenant": "acme", "roles": ["trigger"], "agents": ["one"]},
    {"name": "many", "tenant": "acme", "roles": ["trigger"], "agents": ["one", "two"]},
    {"name": "bob", "tenant": "acme", "roles": ["approve"]},
    {"name": "eve", "tenant": "acme", "roles": ["approve", "trigger"]},
    {"name": "carol", "tenant": "acme", "roles": ["erase"]},
    {"name": "other", "tenant": "umbrella", "roles": ["trigger", "read", "host", "approve", "erase"]},
]


def settings(url: str, **sections: Any) -> dict[str, Any]:
    """A configuration as the file would hold it; tokens are their own names."""
    return {
        "redis": {"url": url},
        "tokens": [token | {"sha256": token_hash(token["name"])} for token in _TOKENS],
        "mcp": {
            "servers": {
                "d": {
                    "command": ["unused"],
                    "tools": {
                        "create": {"human": "approve"},
                        "drop": {"human": "confirm"},
                        "list": {"read_only": True},
                    },
                }
            },
            "aliases": {"make": ASK},
        },
        "policy": {"mutation_tools": [AUTO]},
    } | sections


def bearer(name: str) -> dict[str, str]:
    """The header of a token above."""
    return {"Authorization": f"Bearer {name}"}


def plan(*calls: tuple[str, dict[str, Any]], session: str = "s1", **more: Any) -> dict[str, Any]:
    """A trigger request."""
    return {"session_id": session, "calls": [{"tool": tool, "arguments": a} for tool, a in calls]} | more


class CountingWaker:
    """Counts wake-ups."""

    def __init__(self) -> None:
        self.wakes = 0

    def wake(self) -> None:
        """Counts one."""
        self.wakes += 1


class Bench:
    """A front door in this process, with Flask's client, and the worker's side driven by hand."""

    def __init__(self, config: Config, data_dir: Path) -> None:
        self.config = config
        self.waker = CountingWaker()
        self.app = create_app(config, waker=self.waker, data_dir=data_dir)
        self.client: FlaskClient = self.app.test_client()

    @property
    def door(self) -> FrontDoor:
        """The app's parts."""
        door: FrontDoor = self.app.extensions[EXTENSION]
        return door

    def get(self, path: str, as_: str = "host", **headers: str) -> TestResponse:
        """A GET with a token; header names take _ for -."""
        return self.client.get(path, headers=bearer(as_) | _headers(headers))

    def post(self, path: str, body: Any = None, as_: str = "host", **headers: str) -> TestResponse:
        """A POST of JSON with a token."""
        kwargs: dict[str, Any] = {}
        if body is not None:
            kwargs = {"data": write_json(body, json.JSONEncoder()), "content_type": "application/json"}
        return self.client.post(path, headers=bearer(as_) | _headers(headers), **kwargs)

    def erase(self, session: str, query: str = "", as_: str = "carol") -> TestResponse:
        """A DELETE of a session; the id is put into the path as it is."""
        return self.client.delete(f"/api/sessions/{session}{query}", headers=bearer(as_))

    def raw(self, data: bytes, kind: str | None = "application/json", as_: str = "host") -> TestResponse:
        """A trigger with these very bytes."""
        return self.client.post("/api/trigger", data=data, content_type=kind, headers=bearer(as_))

    def trigger(self, *calls: tuple[str, dict[str, Any]], as_: str = "host", **more: Any) -> dict[str, Any]:
        """An admitted run's object."""
        reply = self.post("/api/trigger", plan(*calls, **more), as_=as_)
        assert reply.status_code in (200, 202), reply.text
        run: dict[str, Any] = reply.get_json()
        return run

    def run(self, run_id: str) -> dict[str, Any]:
        """The run as it is now."""
        run: dict[str, Any] = self.get(f"/api/runs/{run_id}").get_json()
        return run

    def approve(self, run: dict[str, Any], index: int = 0, decision: str = "approve") -> TestResponse:
        """Bob's decision on a call."""
        path = f"/api/approvals/{run['calls'][index]['approval_id']}"
        return self.post(path, {"decision": decision}, as_="bob")

    def begin(self, run: dict[str, Any]) -> Claimed:
        """A worker claims the run's session and begins its next call."""
        shard = int(run["run_id"][:2], 16)
        reply = self.door.store.run(claim_sessions(shard, secrets.token_hex(8), 1, self._policy))
        assert len(reply.sessions) == 1
        return reply.sessions[0]

    def settle(
        self,
        claimed: Claimed,
        status: MutationStatus = MutationStatus.COMPLETED,
        result: str | None = '{"ok":true}',
        **more: Any,
    ) -> Claimed:
        """The worker settles what is in flight and begins the next call, which the answer holds."""
        work = claimed.work
        assert isinstance(work, Begun)
        settled = self.door.store.run(
            settle_attempt(
                int(work.run_id[:2], 16),
                work,
                claimed.token,
                Settlement(status, more.get("reason"), result),
                next_step=work.step + 1,
                policy=self._policy,
            )
        )
        assert settled.work is not None
        return Claimed(claimed.sid, claimed.token, settled.work)

    def finish(self, run: dict[str, Any], status: MutationStatus = MutationStatus.COMPLETED) -> None:
        """A worker takes the run to its end, every call with this status."""
        claimed = self.begin(run)
        while isinstance(claimed.work, Begun):
            claimed = self.settle(claimed, status)

    @property
    def _policy(self) -> Any:
        return begin_policy(self.config, self.door.plugins.policy)

    def close(self) -> None:
        """Ends the front door's parts."""
        self.door.close()


def subscribers(admin: redis.Redis) -> set[str]:
    """The ids of the store's clients that listen to sharded channels."""
    clients: Any = admin.client_list(_type="pubsub")
    return {one["id"] for one in clients if one["ssub"] != "0"}


def _headers(names: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in names.items()}


@pytest.fixture
def make_bench(store_url: str, tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """Makes front doors on the session's store; arguments are sections of the configuration."""
    made: list[Bench] = []

    def make(url: str = store_url, **sections: Any) -> Bench:
        made.append(Bench(Config.model_validate(settings(url, **sections)), tmp_path))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    """A front door with the settings above."""
    return make_bench()


class ServeProcess:
    """`mutation-ledger serve` as a process of its own."""

    def __init__(self, directory: Path, config: dict[str, Any]) -> None:
        self.port = free_port()
        file = directory / "serve.toml"
        file.write_text("".join(f"{key} = {_toml(value)}\n" for key, value in config.items()))
        self.log = directory / "serve.log"
        command = [sys.executable, "-m", "ledger.cli", "serve", "--config", str(file), "--port", str(self.port)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command_line([*command, "--data", str(directory)]), stdout=log, stderr=log, env={**os.environ}
            )
        wait_until(self._answers, 30, "the front door to answer")

    def request(
        self, method: str, path: str, body: Any = None, as_: str = "host", timeout: float = 30, **headers: str
    ) -> tuple[int, Any]:
        """Status and JSON of one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, json.dumps(body), self._headers(as_, headers))
            response = connection.getresponse()
            data = response.read()
            return response.status, json.loads(data) if data else None
        finally:
            connection.close()

    @contextmanager
    def stream(self, method: str, path: str, body: Any = None, **headers: str) -> Iterator[http.client.HTTPResponse]:
        """An open streaming response; its lines arrive as they are sent."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), self._headers("host", headers))
            yield connection.getresponse()
        finally:
            connection.close()

    def terminate(self) -> None:
        """SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """SIGTERM and the end; SIGKILL if it does not come."""
        self.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)

    @staticmethod
    def _headers(as_: str, headers: dict[str, str]) -> dict[str, str]:
        return bearer(as_) | {"Content-Type": "application/json"} | _headers(headers)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.request("GET", "/livez")[0] == 200
        except OSError:
            return False


@pytest.fixture
def serve(store_url: str, tmp_path: Path) -> Iterator[Callable[..., ServeProcess]]:
    """Starts front-door processes on the session's store."""
    with ExitStack() as stack:

        def start(url: str = store_url, **sections: Any) -> ServeProcess:
            process = ServeProcess(tmp_path, settings(url, **sections))
            stack.callback(process.stop)
            return process

        yield start


def frames_of(stream: Any) -> Iterator[dict[str, str]]:
    """Server-sent events of an open response as `{id, event, data}`; comments have the key `comment`."""
    frame: dict[str, str] = {}
    for line in stream:
        text = line.decode().rstrip("\n")
        if not text:
            yield frame
            frame = {}
        elif text.startswith(":"):
            frame["comment"] = text
        else:
            name, _, value = text.partition(": ")
            frame[name] = value


def sse(text: str) -> list[dict[str, str]]:
    """Server-sent events of a finished response."""
    return list(frames_of(f"{line}\n".encode() for line in text.split("\n")[:-1]))


def _toml(value: Any) -> str:
    """A value as TOML; tables inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)
