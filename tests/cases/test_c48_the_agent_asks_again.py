"""C48: a turn that is tried again, resumed or asked for twice never repeats what was done."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.case_tools import ASK, PAY
from tests.support.casework import CaseStack


def _plan(cases: CaseStack, session: str, did: str, *calls: tuple[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    reply = cases.api.trigger(session, did, list(calls), **more)
    assert reply.status in (200, 202), reply
    body: dict[str, Any] = reply.body
    return body


def _codes(run: dict[str, Any]) -> list[str | None]:
    return [call["refusal"] and call["refusal"]["code"] for call in run["calls"]]


@pytest.mark.proves("C-11", "C-60")
def test_a_turn_tried_again_or_resumed_runs_what_is_left(cases: CaseStack) -> None:
    """(a) the model fails after A and the whole turn is handed in again; (b) B is approved and the turn resumes."""
    mail = {"to": "x", "case": "c48-a"}
    swapped = {"case": "c48-a", "to": "x"}
    pay = {"amount": 5, "case": "c48-a"}
    first = _plan(cases, "c48-a", "turn", (PAY, mail), (ASK, pay))
    cases.entered(to="x", case="c48-a")
    again = _plan(cases, "c48-a", "turn", (PAY, swapped), (ASK, pay))
    assert again["run_id"] == first["run_id"]
    assert again["calls"][1]["status"] == "waiting_for_approval"
    assert cases.api.approve(again["calls"][1]["approval_id"]).status == 200
    assert [call["status"] for call in cases.api.ended(first["run_id"])["calls"]] == ["completed", "completed"]

    resumed = cases.api.ended(_plan(cases, "c48-a", "turn", (PAY, swapped), (ASK, pay))["run_id"])
    assert (resumed["status"], _codes(resumed)) == ("completed", ["mutation_completed", "mutation_completed"])
    assert resumed["calls"][0]["refusal"]["status"] == "completed"
    # A refusal shows the record, never the tool's stored words (C-11).
    assert [call["result"] for call in resumed["calls"]] == [None, None]
    assert len(cases.effects(to="x", case="c48-a")) == len(cases.effects(amount=5, case="c48-a")) == 1


@pytest.mark.proves("C-60")
def test_the_same_call_twice_in_one_turn_is_one_mutation(cases: CaseStack) -> None:
    """(c)"""
    mail = {"to": "y", "case": "c48-c"}
    run = cases.api.ended(_plan(cases, "c48-c", "turn", (PAY, mail), (PAY, mail))["run_id"])
    assert [call["status"] for call in run["calls"]] == ["completed", "refused"]
    assert (run["status"], _codes(run)) == ("completed", [None, "mutation_completed"])
    assert len(cases.effects(to="y", case="c48-c")) == 1


@pytest.mark.proves("C-13", "C-60")
def test_a_new_delivery_asks_for_a_new_mutation_with_its_own_approval(cases: CaseStack) -> None:
    """(d)"""
    pay = {"amount": 9, "case": "c48-d"}
    for did in ("first", "second"):
        run = _plan(cases, "c48-d", did, (ASK, pay))
        assert run["calls"][0]["status"] == "waiting_for_approval"
        assert cases.api.approve(run["calls"][0]["approval_id"]).status == 200
        assert cases.api.ended(run["run_id"])["status"] == "completed"
    assert len(cases.effects(amount=9, case="c48-d")) == 2


@pytest.mark.proves("C-11")
def test_what_nobody_knows_is_not_tried_again(cases: CaseStack) -> None:
    """(e) also in a continuation of the same logical turn"""
    lost = {"case": "c48-e", "gate": "c48-e"}
    run = _plan(cases, "c48-e", "turn", ("case_held", lost))
    cases.entered(case="c48-e")
    assert cases.api.post(f"/api/runs/{run['run_id']}/cancel").body["status"] == "cancelling"
    ended = cases.api.ended(run["run_id"])
    assert ended["calls"][0]["status"] == "outcome_unknown"
    again = cases.api.ended(_plan(cases, "c48-e", "turn", ("case_held", lost))["run_id"])
    assert _codes(again) == ["mutation_outcome_unknown"]
    goes_on = _plan(cases, "c48-e", "next", ("case_held", lost), logical_turn_id=ended["logical_turn_id"])
    assert _codes(cases.api.ended(goes_on["run_id"])) == ["mutation_outcome_unknown"]
    assert len(cases.effects(case="c48-e")) == 1


VARIANTS: list[dict[str, Any]] = [
    {"n": 0},
    {"n": 0.0},
    {"n": -0.0},
    {"n": False},
    {"n": 1},
    {"n": 1.0},
    {"n": True},
    {"n": "1"},
    {"to": "café"},
    {"to": "cafe\u0301"},
]


@pytest.mark.proves("C-01")
def test_what_python_calls_equal_is_not_the_same_mutation(cases: CaseStack) -> None:
    """(f) each is a mutation of its own, in one turn"""
    calls = [(PAY, {**variant, "case": "c48-f"}) for variant in VARIANTS]
    run = cases.api.ended(_plan(cases, "c48-f", "turn", *calls)["run_id"])
    assert [call["status"] for call in run["calls"]] == ["completed"] * len(VARIANTS)
    assert len({call["mutation_id"] for call in run["calls"]}) == len(VARIANTS)
    assert len(cases.effects(case="c48-f")) == len(VARIANTS)
