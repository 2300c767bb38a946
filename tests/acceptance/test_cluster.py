"""The whole path on a cluster of three masters: admission, approval, wake-up through RQ, dispatch, streams, erasure."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ledger.config import RedisConfig
from ledger.consumer import FileCursorStore, OutcomeConsumer, RedisCursorStore
from ledger.identity import session_hash
from ledger.store import StoreSettings
from ledger.store.dialing import place
from tests.support.checker import check, read_ledger_at
from tests.support.cluster import ValkeyCluster
from tests.support.snapshot import holders, take
from tests.support.stack import APPROVER, Api, Stack, dashboards_section, native_section, quick_section
from tests.support.wait import wait_until

ERASER = "eraser-token-1"
CONFIG = (
    native_section()
    + quick_section()
    + dashboards_section(human="approve")
    + f'''
[[tokens]]
name = "carol"
tenant = "acme"
roles = ["erase"]
sha256 = "{hashlib.sha256(ERASER.encode()).hexdigest()}"
'''
)
SESSIONS = [f"session-{number}" for number in range(24)]


@dataclass(frozen=True)
class Bench:
    """A cluster with a front door and two workers."""

    cluster: ValkeyCluster
    stack: Stack
    api: Api


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all tests here."""
    folder = tmp_path_factory.mktemp("cluster")
    with (
        ValkeyCluster(folder / "cluster") as cluster,
        Stack(folder / "stack", cluster.url, CONFIG) as stack,
    ):
        api = stack.add_front_door()
        stack.add_worker()
        stack.add_worker()
        yield Bench(cluster, stack, api)


def cli(bench: Bench, *words: str, code: int = 0) -> Any:
    """One command of the program on the cluster; its JSON."""
    command = [sys.executable, "-m", "ledger.cli", *words, "--config", str(bench.stack.config)]
    command += ["--redis-url", bench.cluster.url, "--data", str(bench.stack.directory / "data"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=bench.stack.env)
    assert done.returncode == code, (done.stdout, done.stderr)
    return json.loads(done.stdout) if done.stdout else None


@pytest.mark.acceptance
@pytest.mark.proves("C-25", "C-41", "C-111", "C-112")
def test_the_main_path(bench: Bench, tmp_path: Path) -> None:
    api = bench.api
    runs = [
        api.trigger(session, "d1", [("pay", {"id": f"{session}-1"}), ("approved_pay", {"id": f"{session}-2"})]).body
        for session in SESSIONS
    ]
    wait_until(lambda: len(api.pending()) == len(SESSIONS), 20, "the requests")
    pending = api.pending()
    for approval in pending:
        assert api.approve(approval["id"]).status == 200
    for run in runs:
        ended = api.ended(run["run_id"])
        assert [call["status"] for call in ended["calls"]] == ["completed", "completed"], ended
        events = api.get(f"/api/runs/{run['run_id']}/events?follow=1", Accept="application/x-ndjson")
        assert json.loads(events.body.splitlines()[-1])["status"] == "completed"
    found = read_ledger_at(bench.cluster.url, SESSIONS)
    paid = {f"{session}-{number}" for session in SESSIONS for number in (1, 2)}
    check([effect for effect in bench.stack.effects() if effect.get("id") in paid], found)
    for cursors in (FileCursorStore(tmp_path / "cursors"), RedisCursorStore(bench.cluster.url, "reader")):
        with OutcomeConsumer(bench.cluster.url, cursors) as consumer:
            outcomes = list(consumer.outcomes(once=True))
        told = [outcome.mutation_id for outcome in outcomes if outcome.session_id in SESSIONS]
        assert sorted(told) == sorted(found.entries)
        assert cursors.load() is not None
    # The sessions lie on all three servers, and a worker was woken by a job where RQ's keys are.
    assert len(place(StoreSettings(RedisConfig(url=bench.cluster.url))).shards_by_node(16)) == 3
    holders = [server for server in bench.cluster.servers if server.client().keys("{rq}:*")]
    assert holders == [bench.cluster.owner("{rq}")]


@pytest.mark.acceptance
@pytest.mark.proves("C-33", "C-91")
def test_a_lost_worker_is_swept_and_a_person_reconciles(bench: Bench) -> None:
    api, stack = bench.api, bench.stack
    run = api.trigger("lost", "d1", [("pay_slowly", {"id": "lost", "after": 60})]).body
    (effect,) = wait_until(lambda: [one for one in stack.effects() if one.get("id") == "lost"], 20, "the call")
    stack.kill(next(worker for worker in stack.workers if worker.pid == effect["pid"]))
    stack.add_worker()
    assert api.ended(run["run_id"], timeout=30)["calls"][0]["status"] == "outcome_unknown"
    (unknown,) = cli(bench, "unknowns", "--tenant", "acme")["unknowns"]
    mutation, turn = unknown["mutation_id"], unknown["logical_turn_id"]
    cli(bench, "reconcile", "lost", turn, mutation, "--completed", "--tenant", "acme")
    assert cli(bench, "unknowns", "--tenant", "acme")["unknowns"] == []
    assert [record["status"] for record in api.outcomes("lost")] == ["completed"]


@pytest.mark.acceptance
@pytest.mark.proves("C-82")
def test_an_mcp_call_and_what_is_left_after_its_session_was_erased(bench: Bench) -> None:
    api, marker = bench.api, "carla-4711"
    run = api.trigger("erased", "d1", [("mcp__dashboards__create", {"title": marker})]).body
    (approval,) = wait_until(lambda: [one for one in api.pending() if one["session_id"] == "erased"], 20, "the request")
    assert [one["id"] for one in cli_pending(bench) if one["session_id"] == "erased"] == [approval["id"]]
    assert api.approve(approval["id"]).status == 200
    assert api.ended(run["run_id"])["status"] == "completed"
    assert "erased" in {row["session_id"] for row in cli(bench, "sessions", "--tenant", "acme")["sessions"]}
    assert len(cli(bench, "show", "erased", "--tenant", "acme")["turns"]) == 1
    assert api.as_(ERASER).request("DELETE", "/api/sessions/erased?wait=20", None, {}).status == 204
    assert api.get(f"/api/runs/{run['run_id']}").status == 404
    assert api.trigger("erased", "d1", [("mcp__dashboards__create", {"title": marker})]).status == 410
    sid = session_hash("acme", "erased").encode()
    assert [key for key in bench.cluster.keys("*") if sid in key or run["run_id"].encode() in key] == []
    assert all(holders(take(server.client()), marker) == [] for server in bench.cluster.servers)


def cli_pending(bench: Bench) -> list[dict[str, Any]]:
    """The inbox by the command line."""
    words = ["approvals", "--url", f"http://127.0.0.1:{bench.api.port}", "--token", APPROVER]
    found: list[dict[str, Any]] = cli(bench, *words)["approvals"]
    return found


@pytest.mark.acceptance
@pytest.mark.proves("C-21", "C-111")
def test_doctor_and_tail_know_the_cluster(bench: Bench) -> None:
    bench.api.trigger("tailed", "d1", [("pay", {"id": "tailed"})], wait=20)
    command = [sys.executable, "-m", "ledger.cli", "tail", "--once", "--from-start", "--tenant", "acme"]
    command += ["--config", str(bench.stack.config), "--redis-url", bench.cluster.url]
    command += ["--data", str(bench.stack.directory / "tail")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=bench.stack.env)
    assert "tailed" in {json.loads(line)["session_id"] for line in done.stdout.splitlines()}
    report = cli(bench, "doctor")
    assert report["ok"], report
    assert {server.port for server in bench.cluster.masters} <= _ports_in(report)


def _ports_in(report: Any) -> set[int]:
    return {int(port) for port in re.findall(r":(\d{4,5})\b", json.dumps(report["checks"]))}
