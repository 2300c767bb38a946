"""The whole path on a cluster of three masters: admission, approval, wake-up through RQ, dispatch, streams, erasure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ledger.config import RedisConfig
from ledger.consumer import FileCursorStore, OutcomeConsumer, RedisCursorStore
from ledger.store import StoreSettings
from ledger.store.dialing import place
from tests.support.checker import check, read_ledger_at
from tests.support.cluster import ValkeyCluster
from tests.support.stack import Api, Stack, native_section, quick_section
from tests.support.wait import wait_until

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
        Stack(folder / "stack", cluster.url, native_section() + quick_section()) as stack,
    ):
        api = stack.add_front_door()
        stack.add_worker()
        stack.add_worker()
        yield Bench(cluster, stack, api)


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
    check(bench.stack.effects(), found)
    for cursors in (FileCursorStore(tmp_path / "cursors"), RedisCursorStore(bench.cluster.url, "reader")):
        with OutcomeConsumer(bench.cluster.url, cursors) as consumer:
            told = [outcome.mutation_id for outcome in consumer.outcomes(once=True)]
        assert sorted(told) == sorted(found.entries)
        assert cursors.load() is not None
    # The sessions lie on all three servers, and a worker was woken by a job where RQ's keys are.
    assert len(place(StoreSettings(RedisConfig(url=bench.cluster.url))).shards_by_node(16)) == 3
    holders = [server for server in bench.cluster.servers if server.client().keys("{rq}:*")]
    assert holders == [bench.cluster.owner("{rq}")]
