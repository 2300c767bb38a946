"""What a host declares in the store holds in every front door at once (C-05); handlers are admitted by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledger.declared import declare_tools
from ledger.identity import session_hash
from ledger.ids import shard_of_session
from tests.support.service import ASK, PLAIN, Bench, plan

HANDLERS = {"plugins": {"modules": ["tests.support.effect_tools", "tests.support.plugins.turns"]}}


def _declare(bench: Bench, session: str, tool: str) -> None:
    shard = shard_of_session(session_hash("acme", session), bench.door.shards)
    bench.door.store.run(declare_tools(shard, [tool]))


@pytest.mark.proves("C-05")
def test_a_declared_tool_is_protected_from_the_next_request_on(bench: Bench) -> None:
    before = bench.trigger((PLAIN, {"n": 1}))
    _declare(bench, "s1", PLAIN)
    after = bench.trigger((PLAIN, {"n": 2}), (ASK, {}))
    assert [call["protected"] for call in (before["calls"][0], *after["calls"])] == [False, True, True]
    # Declaring changes no approval policy.
    assert [call["status"] for call in after["calls"]] == ["queued", "waiting_for_approval"]
    # What one shard told holds for all.
    assert bench.trigger((PLAIN, {"n": 3}), session="s2")["calls"][0]["protected"] is True


@pytest.mark.proves("C-05")
def test_front_doors_hear_of_it_one_by_one(make_bench: Callable[..., Bench]) -> None:
    one, other = make_bench(), make_bench()
    _declare(one, "s1", PLAIN)
    assert one.trigger((PLAIN, {"n": 1}))["calls"][0]["protected"] is True
    assert other.trigger((PLAIN, {"n": 2}))["calls"][0]["protected"] is True


@pytest.mark.proves("C-60", "C-64")
def test_a_handler_run_is_admitted_with_its_text_and_input(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(**HANDLERS)
    asked = {"session_id": "s1", "user": "dana", "delivery_id": "d1", "handler": "follow", "text": "hi", "input": [1.0]}
    first = bench.post("/api/trigger", asked)
    assert (first.status_code, first.get_json()["calls"]) == (202, [])
    assert bench.post("/api/trigger", asked).get_json()["run_id"] == first.get_json()["run_id"]
    for change in ({"text": "ho"}, {"input": [1]}, {"handler": "follow_again"}):
        assert bench.post("/api/trigger", asked | change).get_json()["code"] == "delivery_mismatch"
    unknown = bench.post("/api/trigger", asked | {"handler": "nobody", "delivery_id": "d2"})
    assert (unknown.status_code, unknown.get_json()["code"]) == (422, "unknown_handler")
    assert bench.post("/api/trigger", plan((ASK, {}), handler="follow")).status_code == 400
