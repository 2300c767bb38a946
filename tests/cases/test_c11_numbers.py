"""C11: numbers that are not numbers never become null: refused at the door, withheld in a result."""

from __future__ import annotations

import pytest

from tests.support.case_tools import ODD
from tests.support.casework import CaseStack, untouched
from tests.support.service import ASK, Bench


def body(arguments: str, tool: str = ASK) -> bytes:
    """A trigger with these very characters as arguments."""
    return f'{{"session_id":"c11","calls":[{{"tool":"{tool}","arguments":{arguments}}}]}}'.encode()


@pytest.mark.proves("C-02")
@pytest.mark.parametrize(
    "arguments",
    ['{"amount":NaN}', '{"amount":Infinity}', '{"amount":1e400}', '{"amount":-1e999}', '{"a":[{"b":1e400}]}'],
)
def test_the_door_refuses_and_nothing_is_stored(bench: Bench, arguments: str) -> None:
    with untouched(bench):
        reply = bench.raw(body(arguments))
    assert (reply.status_code, reply.get_json()["code"]) == (400, "invalid_request")
    assert bench.waker.wakes == 0


@pytest.mark.proves("C-02")
def test_what_is_too_small_is_the_float_it_parses_to(bench: Bench) -> None:
    run = bench.raw(body('{"amount":1e-400}')).get_json()
    (asked,) = bench.get("/api/approvals", as_="bob").get_json()["approvals"]
    assert asked["arguments"] == {"amount": 0.0}
    assert run["calls"][0]["mutation_id"] == bench.raw(body('{"amount":0.0}')).get_json()["calls"][0]["mutation_id"]


@pytest.mark.proves("C-02")
def test_a_model_s_call_is_refused_before_anybody_is_asked(cases: CaseStack) -> None:
    body = {"session_id": "c11-model", "agent": "ops", "user": "dana", "delivery_id": "d1", "handler": "case_model"}
    run = cases.api.post("/api/trigger?wait=20", body).body
    assert (run["status"], run["narration"]) == ("completed", ["invalid_request"] * 3)
    assert run["calls"] == []
    events = cases.api.get(f"/api/runs/{run['run_id']}/events").body["events"]
    assert [event["type"] for event in events] == ["run_started", "run_completed"]
    assert [line for line in cases.stack.effects() if None in line["arguments"].values()] == []


@pytest.mark.proves("C-100")
@pytest.mark.parametrize("answer", ["nan", "infinity"])
def test_a_result_with_one_is_withheld_and_the_outcome_stands(cases: CaseStack, answer: str) -> None:
    session = f"c11-{answer}"
    run = cases.api.trigger(session, "d1", [(ODD, {"answer": answer, "case": session})], wait=20).body
    assert run["status"] == "completed"
    assert (run["calls"][0]["status"], run["calls"][0]["result"]) == ("completed", None)
    assert [outcome["status"] for outcome in cases.api.outcomes(session)] == ["completed"]
    assert len(cases.effects(case=session)) == 1
