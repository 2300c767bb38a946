"""The front door while its store is away, loses replies, refuses writes or went back (C-22, C-26, C-27)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis

from ledger.config import Config, RedisConfig
from ledger.errors import StoreUnavailable, Unconfirmed
from ledger.runs import read_run
from ledger.store import ScriptCall, StoreSettings, SyncStore
from service import following
from service.door import EXTENSION
from service.waiting import Hub
from tests.support.service import ASK, AUTO, Bench, ServeProcess, bearer, plan, settings, subscribers
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

T = TypeVar("T")


class ForgetfulStore(SyncStore):
    """Runs every call, then loses the confirmations of the next `losses` writes, as a dropped connection would."""

    losses = 0

    def run(self, call: ScriptCall[T]) -> T:
        """The real answer, or Unconfirmed after the real write."""
        answer = super().run(call)
        if self.losses and call.script.name in ("admit_delivery", "decide_approval"):
            self.losses -= 1
            raise Unconfirmed("the reply was lost", sent=True)
        return answer


@pytest.fixture
def forgetful(bench: Bench, store_url: str) -> Iterator[tuple[Bench, ForgetfulStore]]:
    store = ForgetfulStore(StoreSettings(Config.model_validate(settings(store_url)).redis))
    bench.door.store = store
    yield bench, store
    store.close()


def _code(reply: Any) -> tuple[int, str]:
    return reply.status_code, reply.get_json()["code"]


@pytest.mark.proves("C-22")
def test_a_lost_confirmation_is_asked_for_once_more_and_admits_once(
    forgetful: tuple[Bench, ForgetfulStore],
) -> None:
    bench, store = forgetful
    store.losses = 1
    run = bench.trigger((ASK, {"n": 1}))
    assert store.losses == 0
    inbox = bench.get("/api/approvals", as_="bob").get_json()["approvals"]
    assert [row["run_id"] for row in inbox] == [run["run_id"]]


def test_what_was_never_sent_is_not_tried_again(bench: Bench) -> None:
    class AbsentStore(SyncStore):
        """Counts calls and sends none."""

        calls = 0

        def run(self, call: ScriptCall[T]) -> T:
            """Always away."""
            self.calls += 1
            raise StoreUnavailable("away", sent=False)

    store = AbsentStore(bench.door.store.settings)
    bench.door.store = store
    assert _code(bench.post("/api/trigger", plan((ASK, {})))) == (503, "store_unavailable")
    assert store.calls == 1


@pytest.mark.proves("C-26")
@pytest.mark.parametrize("given", ["d1", None])
def test_an_unconfirmed_admission_is_unknown_and_can_be_retried(
    forgetful: tuple[Bench, ForgetfulStore], given: str | None
) -> None:
    bench, store = forgetful
    store.losses = 2
    body = plan((ASK, {"n": 1}), delivery_id=given)
    reply = bench.post("/api/trigger", body)
    problem = reply.get_json()
    assert _code(reply) == (503, "store_unconfirmed")
    assert int(reply.headers["Retry-After"]) > 0
    assert problem["admitted"] == "unknown"
    assert given in (None, problem["delivery_id"])
    run = bench.trigger((ASK, {"n": 1}), delivery_id=problem["delivery_id"])
    inbox = bench.get("/api/approvals", as_="bob").get_json()["approvals"]
    assert [row["run_id"] for row in inbox] == [run["run_id"]]


@pytest.mark.proves("C-26", "C-41")
def test_an_unconfirmed_decision_is_unknown_and_can_be_repeated(forgetful: tuple[Bench, ForgetfulStore]) -> None:
    bench, store = forgetful
    run = bench.trigger((ASK, {"n": 1}))
    store.losses = 2
    reply = bench.approve(run)
    assert _code(reply) == (503, "store_unconfirmed")
    assert reply.get_json()["decided"] == "unknown"
    assert bench.approve(run).get_json()["state"] == "approved"


@pytest.mark.proves("C-26")
def test_an_absent_store_is_503_and_everything_recovers(
    make_bench: Callable[..., Bench], valkey: ValkeyProcess
) -> None:
    bench = make_bench(valkey.url)
    run = bench.trigger((ASK, {"n": 1}))
    valkey.kill9()
    paths = ["/readyz", f"/api/runs/{run['run_id']}", "/api/mutation-outcomes?session_id=s1"]
    for reply in [*(bench.get(path) for path in paths), bench.post("/api/trigger", plan((AUTO, {})))]:
        assert _code(reply) == (503, "store_unavailable")
        assert int(reply.headers["Retry-After"]) > 0
        assert "admitted" not in reply.get_json()
    assert _code(bench.approve(run)) == (503, "store_unavailable")
    assert bench.get("/livez").get_json() == {"status": "alive"}
    valkey.restart()
    assert bench.get("/readyz").get_json() == {"status": "ready", "durability": "verified"}
    assert bench.approve(run).status_code == 200
    bench.finish(run)
    assert bench.run(run["run_id"])["status"] == "completed"


@pytest.mark.proves("C-26")
def test_a_front_door_starts_before_its_store(make_bench: Callable[..., Bench], valkey: ValkeyProcess) -> None:
    valkey.kill9()
    bench = make_bench(valkey.url)
    assert _code(bench.post("/api/trigger", plan((AUTO, {})))) == (503, "store_unavailable")
    valkey.restart()
    assert bench.trigger((AUTO, {}))["status"] == "queued"


@pytest.mark.proves("C-26")
def test_a_store_that_refuses_writes(make_bench: Callable[..., Bench], valkey: ValkeyProcess) -> None:
    bench = make_bench(valkey.url)
    bench.trigger((ASK, {"n": 1}))
    client: Any = valkey.client()
    for change, back in [
        (("CONFIG", "SET", "maxmemory", "1mb"), ("CONFIG", "SET", "maxmemory", "0")),
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
    ]:
        client.execute_command(*change)
        reply = bench.post("/api/trigger", plan((ASK, {"n": 2})))
        assert _code(reply) == (503, "store_unavailable")
        assert "admitted" not in reply.get_json()
        client.execute_command(*back)
        assert bench.trigger((ASK, {"n": 2}))["status"] == "waiting_for_approval"


@pytest.mark.proves("C-27")
def test_a_store_that_went_back_stops_everything(make_bench: Callable[..., Bench], valkey: ValkeyProcess) -> None:
    bench = make_bench(valkey.url)
    run = bench.trigger((ASK, {"n": 1}))
    valkey.client().flushall()
    for reply in (bench.post("/api/trigger", plan((ASK, {"n": 1}))), bench.approve(run), bench.get("/readyz")):
        assert _code(reply) == (503, "store_went_back")
        assert "store accept" in reply.get_json()["detail"]
        assert int(reply.headers["Retry-After"]) > 0


@pytest.mark.proves("C-21")
def test_readiness_tells_an_unsafe_store(make_bench: Callable[..., Bench], valkey: ValkeyProcess) -> None:
    bench = make_bench(valkey.url)
    assert bench.get("/readyz").get_json()["durability"] == "verified"
    valkey.client().config_set("appendfsync", "everysec")
    reply = bench.get("/readyz")
    assert _code(reply) == (503, "store_unsafe")
    assert reply.get_json()["durability"] == "unsafe"
    tolerant = make_bench(valkey.url, redis={"url": valkey.url, "allow_ephemeral": True})
    assert tolerant.get("/readyz").get_json() == {"status": "ready", "durability": "unsafe"}


@pytest.mark.proves("C-21")
def test_serve_refuses_an_unsafe_store_in_one_line(tmp_path: Path) -> None:
    server = ValkeyProcess(tmp_path / "valkey", settings={"appendonly": "no"}).start()
    try:
        command = [sys.executable, "-m", "ledger.cli", "serve", "--redis-url", server.url, "--data", str(tmp_path)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=tmp_path, check=False)
    finally:
        server.stop()
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: ")
    assert ended.stderr.count("\n") == 1
    assert "appendonly" in ended.stderr


@pytest.mark.proves("C-112")
def test_a_stream_outlives_its_store(
    make_bench: Callable[..., Bench], valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(following, "TICK_SECONDS", 0.05)
    bench = make_bench(valkey.url)
    headers = bearer("host") | {"Accept": "application/x-ndjson"}
    reply = bench.client.post("/api/trigger", json=plan((ASK, {"n": 1})), headers=headers)
    lines = (json.loads(part) for part in reply.response)
    approval = [next(lines) for _ in range(2)][1]["approval_id"]
    valkey.kill9()
    assert [next(lines)["type"] for _ in range(3)] == ["heartbeat"] * 3
    valkey.restart()
    assert bench.post(f"/api/approvals/{approval}", {"decision": "deny"}, as_="bob").status_code == 200
    rest = [line for line in lines if line["type"] != "heartbeat"]
    assert [line["type"] for line in rest] == ["approval_decided", "run_failed", "done"]


@pytest.mark.proves("C-27")
def test_a_stream_ends_when_the_store_went_back(
    make_bench: Callable[..., Bench], valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "TICK_SECONDS", 0.05)
    bench = make_bench(valkey.url)
    headers = bearer("host") | {"Accept": "application/x-ndjson"}
    reply = bench.client.post("/api/trigger", json=plan((ASK, {"n": 1})), headers=headers)
    lines = (json.loads(part) for part in reply.response)
    assert [next(lines)["type"] for _ in range(2)] == ["run_started", "approval_requested"]
    valkey.client().flushall()
    assert list(lines) == [{"type": "error", "code": "store_went_back"}]


def test_hints_wake_a_waiter_also_after_the_subscriber_was_cut_off(
    bench: Bench, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without hints a waiter would look again only after a minute.
    monkeypatch.setattr(following, "TICK_SECONDS", 60.0)
    for cut in (False, True):
        replies: list[Any] = []
        body = plan((AUTO, {"n": 1}), delivery_id=f"d{cut}", session=f"s{cut}")
        client = bench.app.test_client()

        def ask(client: Any = client, body: Any = body, replies: Any = replies) -> None:
            replies.append(client.post("/api/trigger?wait=60", json=body, headers=bearer("host")))

        waiter = threading.Thread(target=ask)
        waiter.start()
        wait_until(lambda: bench.door.hub.waiting, 10, "the waiter to register")
        with redis.Redis.from_url(store_url) as admin:
            wait_until(lambda: subscribers(admin), 10, "the subscriber to connect")
            if cut:
                before = subscribers(admin)
                admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
                wait_until(lambda before=before: subscribers(admin) - before, 10, "the subscriber to come back")  # type: ignore[misc]
        bench.finish(bench.post("/api/trigger", body).get_json())
        waiter.join(20)
        assert [reply.status_code for reply in replies] == [200]


def test_waiters_look_again_after_every_new_connection(valkey: ValkeyProcess) -> None:
    hub = Hub(StoreSettings(RedisConfig(url=valkey.url)))
    try:
        with hub.watch("run") as hint:
            for _ in range(2):
                assert hint.wait(10)
                hint.clear()
                valkey.kill9()
                valkey.restart()
    finally:
        hub.close()
    assert hub.waiting == 0


def test_connections_of_a_burst_are_given_back(bench: Bench, store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.store.connections.IDLE_SECONDS", 0.3)
    run = bench.trigger((ASK, {"n": 1}))
    with redis.Redis.from_url(store_url) as admin:

        def connections() -> int:
            return len([one for one in admin.client_list() if one["name"] == bench.door.store.settings.client_name])

        go = threading.Barrier(30)

        def read() -> None:
            for _ in range(10):
                go.wait()
                bench.door.store.run(read_run(int(run["run_id"][:2], 16), run["run_id"], "acme"))

        threads = [threading.Thread(target=read) for _ in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert connections() > 2
        wait_until(lambda: bench.run(run["run_id"]) and connections() <= 2, 10, "connections to be given back")


def test_a_stopping_front_door_ends_its_waits_and_streams(bench: Bench) -> None:
    run = bench.trigger((ASK, {"n": 1}))
    bench.door.stopping.set()
    began = time.monotonic()
    reply = bench.post("/api/trigger?wait=60", plan((ASK, {"n": 1})))
    assert time.monotonic() - began < 20
    assert (reply.status_code, reply.get_json()["status"]) == (202, "still_running")
    path = f"/api/runs/{run['run_id']}/events?follow=1"
    assert bench.get(path, Accept="text/event-stream").text == ""
    assert bench.app.extensions[EXTENSION].hub.waiting == 0


@pytest.mark.proves("C-26")
def test_a_served_front_door_outlives_its_store(serve: Callable[..., ServeProcess], valkey: ValkeyProcess) -> None:
    process = serve(valkey.url)
    status, run = process.request("POST", "/api/trigger", plan((ASK, {"n": 1})))
    assert status == 202
    valkey.kill9()
    status, problem = process.request("POST", "/api/trigger", plan((ASK, {"n": 2})))
    assert (status, problem["code"]) == (503, "store_unavailable")
    valkey.restart()
    path = f"/api/approvals/{run['calls'][0]['approval_id']}"
    assert process.request("POST", path, {"decision": "deny"}, as_="bob")[0] == 200
    assert process.request("POST", "/api/trigger?wait=0.1", plan((ASK, {"n": 1})))[0] == 202
    assert process.process.poll() is None
