"""Erasing a session over HTTP: invisible at once, deleted in pieces, never run again (C-82, C-84)."""

from __future__ import annotations

import threading
from typing import Any
from urllib.parse import quote

import pytest
import redis

from ledger.attempts import Begun
from ledger.erasure import sweep_retention
from ledger.errors import Refused
from tests.support import snapshot
from tests.support.service import ASK, AUTO, Bench, plan
from tests.support.wait import wait_until

DAY_MS = 86_400_000
MARKER = "alice-test@example.invalid"


def _code(reply: Any) -> tuple[int, str]:
    return reply.status_code, reply.get_json()["code"]


def _sweep(bench: Bench) -> None:
    """What a worker's retention sweep does, until nothing is left."""
    for shard in range(bench.door.shards):
        call = sweep_retention(shard, DAY_MS, 100_000, interval_ms=1)
        wait_until(lambda call=call: not bench.door.store.run(call).more, 10, "the sweep")  # type: ignore[misc]


@pytest.mark.proves("C-82")
def test_an_erased_session_is_unknown_to_every_route_at_once(bench: Bench) -> None:
    done = bench.trigger((AUTO, {"to": MARKER}), delivery_id="d1")
    bench.finish(done)
    waiting = bench.trigger((ASK, {"to": MARKER}), delivery_id="d2")
    turn = bench.run(done["run_id"])["logical_turn_id"]
    reply = bench.erase("s1")
    assert (reply.status_code, reply.get_json()) == (202, {"session_id": "s1", "status": "erasing"})
    for run in (done, waiting):
        for path in (f"/api/runs/{run['run_id']}", f"/api/runs/{run['run_id']}/events"):
            assert _code(bench.get(path)) == (404, "not_found")
        assert _code(bench.post(f"/api/runs/{run['run_id']}/cancel")) == (404, "not_found")
    assert _code(bench.get(f"/api/mutation-events?session_id=s1&logical_turn_id={turn}")) == (404, "not_found")
    assert bench.get("/api/mutation-outcomes?session_id=s1").get_json() == {"mutation_outcomes": []}
    assert bench.get("/api/mutation-state?session_id=s1&delivery_id=d1").get_json() == {"mutation_state": None}
    assert bench.get("/api/approvals", as_="bob").get_json()["approvals"] == []
    assert bench.approve(waiting).status_code in (404, 409)
    for did in ("d1", "d2"):
        tool = AUTO if did == "d1" else ASK
        again = bench.post("/api/trigger", plan((tool, {"to": MARKER}), delivery_id=did))
        assert _code(again) == (410, "delivery_retired")
    continued = bench.post("/api/trigger", plan((AUTO, {"n": 1}), delivery_id="d3", logical_turn_id=turn))
    assert _code(continued) == (409, "logical_turn_unavailable")


@pytest.mark.proves("C-82")
def test_a_wait_ends_when_the_sweep_is_done(bench: Bench, store_url: str) -> None:
    bench.finish(bench.trigger((AUTO, {"to": MARKER}), delivery_id="d1"))
    assert bench.erase("s1", "?wait=0").status_code == 202
    sweeper = threading.Timer(0.2, _sweep, [bench])
    sweeper.start()
    reply = bench.erase("s1", "?wait=20")
    sweeper.join(20)
    assert (reply.status_code, reply.data) == (204, b"")
    with redis.Redis.from_url(store_url) as client:
        assert snapshot.holders(snapshot.take(client), MARKER) == []
    assert _code(bench.erase("s1")) == (404, "not_found")


@pytest.mark.proves("C-82")
def test_an_attempt_in_flight_writes_nothing_back(bench: Bench, store_url: str) -> None:
    claimed = bench.begin(bench.trigger((AUTO, {"to": MARKER}), delivery_id="d1"))
    assert isinstance(claimed.work, Begun)
    assert bench.erase("s1").status_code == 202
    _sweep(bench)
    with pytest.raises(Refused) as refused:
        bench.settle(claimed, result=f'{{"sent":"{MARKER}"}}')
    assert refused.value.code == "attempt_mismatch"
    with redis.Redis.from_url(store_url) as client:
        assert snapshot.holders(snapshot.take(client), MARKER) == []
    assert _code(bench.post("/api/trigger", plan((AUTO, {"to": MARKER}), delivery_id="d1"))) == (
        410,
        "delivery_retired",
    )


@pytest.mark.proves("C-82")
def test_a_new_session_of_that_name_is_a_fresh_one(bench: Bench) -> None:
    bench.finish(bench.trigger((AUTO, {"n": 1}), delivery_id="d1"))
    bench.erase("s1")
    run = bench.trigger((AUTO, {"n": 1}), delivery_id="d2")
    _sweep(bench)
    bench.finish(run)
    outcomes = bench.get("/api/mutation-outcomes?session_id=s1").get_json()["mutation_outcomes"]
    assert [outcome["logical_turn_id"] for outcome in outcomes] == [bench.run(run["run_id"])["logical_turn_id"]]


@pytest.mark.proves("C-82")
def test_runs_of_an_erased_session_stay_unknown_under_its_new_namesake(bench: Bench) -> None:
    old = bench.trigger((ASK, {"to": MARKER}), delivery_id="d1")
    bench.erase("s1")
    bench.trigger((AUTO, {"n": 1}), delivery_id="d2")
    path = f"/api/runs/{old['run_id']}"
    for reply in (bench.get(path), bench.get(f"{path}/events"), bench.post(f"{path}/cancel")):
        assert _code(reply) == (404, "not_found")
    assert bench.approve(old).status_code in (404, 409)


@pytest.mark.proves("C-82", "C-111")
def test_every_stream_entry_of_an_erased_session_goes(bench: Bench) -> None:
    run = bench.trigger((AUTO, {"n": 1}), delivery_id="d1")
    bench.finish(run)
    body = {"session_id": "s1", "delivery_id": "d1", "mutation_id": run["calls"][0]["mutation_id"]}
    for title in ("one", "two"):
        assert bench.post("/api/mutation-metadata", body | {"metadata": {"title": title}}).status_code == 200
    length = ["XLEN", f"ml:{{{run['run_id'][:2]}}}:outcomes"]
    assert bench.door.store.command([length]) == [3]
    bench.erase("s1")
    _sweep(bench)
    assert bench.door.store.command([length]) == [0]


@pytest.mark.parametrize("session", ["a/b", "/a", "a//b", "a/", "..", "a:b@c.d_e-f", "api/sessions", "x" * 128])
def test_any_session_id_can_be_erased(bench: Bench, session: str) -> None:
    bench.trigger((ASK, {"n": 1}), session=session)
    bench.trigger((ASK, {"n": 1}), session="bystander")
    reply = bench.erase(quote(session, safe=""))
    assert (reply.status_code, reply.get_json().get("session_id")) == (202, session)
    left = bench.get("/api/approvals", as_="bob").get_json()["approvals"]
    assert [row["session_id"] for row in left] == ["bystander"]


@pytest.mark.proves("C-64", "C-82")
def test_who_may_erase_what(bench: Bench) -> None:
    bench.trigger((ASK, {"n": 1}))
    assert _code(bench.erase("s1", as_="host")) == (403, "forbidden")
    assert _code(bench.erase("s1", as_="nobody")) == (401, "unauthorized")
    # Another tenant's session is answered as one that never was.
    foreign, unknown = bench.erase("s1", as_="other"), bench.erase("s2", as_="other")
    assert _code(foreign) == (404, "not_found")
    assert foreign.get_json() | {"request_id": ""} == unknown.get_json() | {"request_id": ""}
    assert len(bench.get("/api/approvals", as_="bob").get_json()["approvals"]) == 1
    for path, query in (("x" * 129, ""), ("a b", ""), ("s1", "?wait=61"), ("s1", "?now=1")):
        assert _code(bench.erase(quote(path), query)) == (400, "invalid_request")
