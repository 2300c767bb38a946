"""C28: platforms hand in again after minutes, hours and days. A delivery that ran never runs again, at any age."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from ledger.erasure import sweep_retention
from tests.support import snapshot
from tests.support.clock import MovedClock
from tests.support.service import AUTO, Bench, plan
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

D4 = plan((AUTO, {"marker": "c28-content"}), session="c28", delivery_id="d-4")
DAY_MS = 86_400_000


def _ran(bench: Bench) -> dict[str, Any]:
    run: dict[str, Any] = bench.post("/api/trigger", D4).get_json()
    bench.finish(run)
    return run


def _nothing_to_do(bench: Bench) -> bool:
    ready = [
        bench.door.store.command([["ZCARD", f"ml:{{{shard:02x}}}:ready"]])[0] for shard in range(bench.door.shards)
    ]
    return not any(ready)


@pytest.mark.proves("C-60")
def test_after_minutes_the_record_answers(bench: Bench) -> None:
    _ran(bench)
    for _ in range(3):
        again = bench.post("/api/trigger", D4)
        assert again.status_code == 200
        assert again.get_json()["calls"][0]["refusal"]["code"] == "mutation_completed"
    assert _nothing_to_do(bench)


@pytest.mark.proves("C-60", "C-84")
def test_by_the_store_s_own_clock(make_bench: Callable[..., Bench], tmp_path: Path) -> None:
    """After 301 s, after 24 h and 1 s, and after the retention; the clock is the store's, and it is moved."""
    clock = MovedClock(tmp_path / "clock")
    server = ValkeyProcess(tmp_path / "valkey", env=clock.env).start()
    try:
        bench = make_bench(server.url)
        _ran(bench)
        for seconds in (301, 86_401 - 301):
            clock.advance(seconds, server)
            again = bench.post("/api/trigger", D4)
            assert (again.status_code, again.get_json()["calls"][0]["refusal"]["code"]) == (200, "mutation_completed")
            assert _nothing_to_do(bench)
        clock.advance(31 * 86_400, server)
        for _ in range(2):
            reply = bench.post("/api/trigger", D4)
            assert (reply.status_code, reply.get_json()["code"]) == (410, "delivery_retired")
        assert _nothing_to_do(bench)
    finally:
        server.stop()


@pytest.mark.proves("C-60", "C-84")
def test_after_a_day_when_its_journal_is_gone(bench: Bench, store_url: str) -> None:
    run = _ran(bench)
    with redis.Redis.from_url(store_url) as client:
        keys = [key for key in client.keys(f"*{run['run_id']}*") if b":run:" in key]
        assert len(keys) == 2
        for key in keys:
            assert 0.99 * DAY_MS < client.pttl(key) <= DAY_MS
            client.delete(key)  # what the store does by itself then
    assert bench.get(f"/api/runs/{run['run_id']}").status_code == 404
    again = bench.post("/api/trigger", D4).get_json()
    assert again["calls"][0]["refusal"]["code"] == "mutation_completed"
    assert again["run_id"] != run["run_id"]
    assert _nothing_to_do(bench)


@pytest.mark.proves("C-81", "C-84")
@pytest.mark.parametrize("swept", [False, True])
def test_after_its_retention_it_is_gone_and_stays_refused(make_bench: Callable[..., Bench], swept: bool) -> None:
    bench = make_bench(retention={"session_inactivity_days": 0.5 / 86_400})
    run = _ran(bench)
    shard = int(run["run_id"][:2], 16)
    outcomes = "/api/mutation-outcomes?session_id=c28"
    wait_until(lambda: bench.get(outcomes).get_json() == {"mutation_outcomes": []}, 5, "the session to expire")
    if swept:
        sweep = sweep_retention(shard, DAY_MS, 1000, interval_ms=1)
        wait_until(lambda: bench.door.store.run(sweep).erased, 5, "the sweep to delete it")
        with redis.Redis.from_url(bench.door.store.settings.url) as client:
            assert snapshot.holders(snapshot.take(client), "c28-content") == []
    for _ in range(2):
        reply = bench.post("/api/trigger", D4)
        assert (reply.status_code, reply.get_json()["code"]) == (410, "delivery_retired")
    assert _nothing_to_do(bench)


@pytest.mark.proves("C-60")
@pytest.mark.parametrize("header", [{"X_Slack_Retry_Num": "2"}, {"Retry_Count": "2"}, {}])
def test_a_copy_whose_original_never_came_runs(bench: Bench, header: dict[str, str]) -> None:
    run = bench.post("/api/trigger", plan((AUTO, {"n": 5}), session="c28", delivery_id="d-5"), **header).get_json()
    bench.finish(run)
    assert bench.run(run["run_id"])["calls"][0]["outcome"]["status"] == "completed"
