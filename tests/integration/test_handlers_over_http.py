"""Handler runs through a front door: admitted by name, followed to their narration (C-62, C-64, C-92)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.stack import Api
from tests.support.turns import Turns, call
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory, valkey_session: ValkeyProcess) -> Iterator[tuple[Turns, Api]]:
    """A front door and a worker with the same plugins."""
    valkey_session.client().flushall()
    made = Turns(tmp_path_factory.mktemp("turns"), valkey_session.url)
    try:
        made.stack.add_worker()
        yield made, made.stack.add_front_door()
    finally:
        made.close()


def asked(turns: Turns, **more: Any) -> dict[str, Any]:
    """A trigger request for the story's session."""
    return {"session_id": turns.session, "agent": "ops", "user": "dana", "handler": "follow", "text": "hi", **more}


@pytest.mark.proves("C-62", "C-92")
def test_a_handler_run_is_waited_for_and_answers_with_its_narration(front: tuple[Turns, Api]) -> None:
    turns, api = front[0].fresh(), front[1]
    body = asked(turns, delivery_id="d1", input=[call("pay", id="a")])
    reply = api.post("/api/trigger?wait=20", body)
    assert reply.status == 200, reply.body
    assert (reply.body["status"], reply.body["handler"]) == ("completed", "follow")
    assert reply.body["narration"][0]["status"] == "completed"
    assert [found["status"] for found in reply.body["calls"]] == ["completed"]
    query = f"session_id={turns.session}&agent=ops&user=dana&delivery_id=d1"
    state = api.get(f"/api/mutation-state?{query}").body["mutation_state"]
    assert state["finished"] is True
    assert state["id"] == reply.body["logical_turn_id"]
    again = api.post("/api/trigger?wait=20", {**body, "input": []})
    assert (again.status, again.body["code"]) == (422, "delivery_mismatch")
    assert turns.effects() == ["a"]


@pytest.mark.proves("C-62", "C-112")
@pytest.mark.parametrize("form", ["application/x-ndjson", "text/event-stream"])
def test_streams_end_with_the_narration(front: tuple[Turns, Api], form: str) -> None:
    turns, api = front[0].fresh(), front[1]
    reply = api.post("/api/trigger", asked(turns, delivery_id="d1", input=[call("pay", id="a")]), Accept=form)
    assert reply.status == 200
    last = reply.body.decode().strip().splitlines()[-1].removeprefix("data: ")
    closing = json.loads(last)
    assert closing["type"] == ("done" if "ndjson" in form else "run_completed")
    assert closing["narration"][0]["recorded"] == "completed"
    assert closing["logical_turn_id"]


@pytest.mark.proves("C-40", "C-42")
def test_a_waiting_handler_is_approved_through_the_inbox(front: tuple[Turns, Api]) -> None:
    turns, api = front[0].fresh(), front[1]
    run = api.post("/api/trigger", asked(turns, delivery_id="d1", input=[call("approved_pay", id="a")])).body

    def pending() -> list[dict[str, Any]]:
        return [found for found in api.pending() if found["run_id"] == run["run_id"]]

    (request,) = wait_until(pending, 10, "the request in the inbox")
    assert (request["tool"], request["arguments"]) == ("approved_pay", {"id": "a"})
    assert api.run(run["run_id"])["status"] == "waiting_for_approval"
    assert api.approve(request["id"]).status == 200
    assert api.ended(run["run_id"])["narration"][0]["status"] == "completed"


@pytest.mark.proves("C-64")
def test_an_unknown_handler_is_refused_and_nothing_is_stored(front: tuple[Turns, Api]) -> None:
    turns, api = front[0].fresh(), front[1]
    before = turns.store.command([["DBSIZE"]])[0]
    reply = api.post("/api/trigger", asked(turns, handler="nobody"))
    assert (reply.status, reply.body["code"]) == (422, "unknown_handler")
    both = api.post("/api/trigger", asked(turns, calls=[{"tool": "pay", "arguments": {"id": "a"}}]))
    assert (both.status, both.body["code"]) == (400, "invalid_request")
    assert turns.store.command([["DBSIZE"]])[0] == before
