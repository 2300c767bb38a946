"""C08: a session erased while it works does not come back, and what it began is not done again."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from tests.support import cli
from tests.support.case_tools import ASK, HELD, PAY
from tests.support.casework import ERASER, CaseStack, follow
from tests.support.stack import APPROVER, Reply
from tests.support.wait import wait_until

MARKER = "alice-test@example.invalid"


def _erase(cases: CaseStack, session: str, query: str = "?wait=20") -> Reply:
    return cases.api.as_(ERASER).request("DELETE", f"/api/sessions/{session}{query}", None, {})


def _code(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.body["code"]


Erased = tuple[CaseStack, str, dict[str, Any], str]
"""The stack, the erased session, its run, and the turn it had."""


@pytest.fixture(scope="module")
def erased(cases: CaseStack) -> Erased:
    """A session that was erased while its call was out; the call has answered since."""
    session = "c08"
    run = cases.api.trigger(session, "d-1", [(HELD, _arguments(session))]).body
    cases.entered(gate=session)
    turn: str = cases.api.run(run["run_id"])["logical_turn_id"]
    attached = cases.api.post(
        "/api/mutation-metadata",
        {
            "session_id": session, "agent": "ops", "user": "dana", "delivery_id": "d-1",
            "mutation_id": run["calls"][0]["mutation_id"], "metadata": {"title": MARKER, "scope_identity": MARKER},
        },
    )  # fmt: skip
    assert attached.status == 200
    assert cases.where(MARKER)
    assert _erase(cases, session).status == 204
    cases.open_gate(session)
    wait_until(lambda: "settlement_refused" in cases.stack.logs(), 15, "the late report to be refused")
    return cases, session, run, turn


def _arguments(session: str) -> dict[str, Any]:
    return {"gate": session, "to": MARKER, MARKER: True}


@pytest.mark.proves("C-82")
def test_a_the_late_report_brings_nothing_back(erased: Erased) -> None:
    cases, session, run, _ = erased
    assert cases.where(MARKER) == []
    assert cases.where(f'"{session}"') == []
    assert cases.api.outcomes(session) == []
    assert _code(cases.api.get(f"/api/runs/{run['run_id']}")) == (404, "not_found")
    assert _code(_erase(cases, session)) == (404, "not_found")
    # What stays is that something was dispatched: sixteen bytes under a key that the store does not hold (C-84).
    tombstones = cases.client.zrange(f"ml:{{{run['run_id'][:2]}}}:retired", 0, -1)
    assert tombstones
    assert {len(tombstone) for tombstone in tombstones} == {16}
    identity = hashlib.sha256(json.dumps(["acme", session, "ops", "dana", "d-1"], separators=(",", ":")).encode())
    assert identity.hexdigest() == run["delivery"]
    assert identity.digest()[:16] not in tombstones


@pytest.mark.proves("C-84")
def test_b_the_same_delivery_is_refused_for_good(erased: Erased) -> None:
    cases, session, _, _ = erased
    for _ in range(2):
        assert _code(cases.api.trigger(session, "d-1", [(HELD, _arguments(session))])) == (410, "delivery_retired")
    assert len(cases.effects(gate=session)) == 1


@pytest.mark.proves("C-82")
def test_c_no_key_job_or_log_holds_a_word_of_it(erased: Erased) -> None:
    cases, _, _, _ = erased
    assert cases.where(MARKER) == []
    for key in cases.client.scan_iter("{rq}*"):
        assert MARKER.encode() not in cases.client.dump(key)
    assert MARKER not in cases.stack.logs()


@pytest.mark.proves("C-82", "C-110")
def test_d_readers_with_an_old_cursor_are_told_at_once(erased: Erased) -> None:
    cases, session, run, turn = erased
    events = f"/api/mutation-events?session_id={session}&logical_turn_id={turn}"
    for reply in (
        cases.api.get(events, Last_Event_ID="1", Accept="text/event-stream"),
        cases.api.get(f"{events}&after=1"),
        cases.api.get(f"/api/runs/{run['run_id']}/events?follow=1&after=2", Accept="text/event-stream"),
    ):
        assert _code(reply) == (404, "not_found")


@pytest.mark.proves("C-82", "C-41")
def test_e_a_request_of_an_erased_session_cannot_be_approved(cases: CaseStack) -> None:
    run = cases.api.trigger("c08-e", "d-1", [(ASK, {"case": "c08-e", "to": MARKER})]).body
    assert _erase(cases, "c08-e", "").status == 202
    reply = cases.api.approve(run["calls"][0]["approval_id"])
    assert _code(reply) in [(409, "approval_cancelled"), (404, "not_found")]
    wait_until(lambda: _code(cases.api.approve(run["calls"][0]["approval_id"]))[0] == 404, 10, "the sweep")
    assert cases.api.as_(APPROVER).get("/api/approvals?session_id=c08-e").body["approvals"] == []
    # The worker has passed by since.
    assert cases.api.trigger("c08-f", "d-1", [(PAY, {"case": "c08-f"})], wait=20).body["status"] == "completed"
    assert cases.effects(case="c08-e") == []


@pytest.mark.proves("C-82")
def test_a_reader_that_follows_is_not_left_hanging(cases: CaseStack) -> None:
    run = cases.api.trigger("c08-g", "d-1", [(ASK, {"case": "c08-g"})]).body
    with follow(cases.api, run["run_id"], after=2) as response:
        assert response.readline() == b":\n"
        _erase(cases, "c08-g", "")
        rest = response.read().decode()
    assert 'event: error\ndata: {"type":"error","code":"not_found"}' in rest


@pytest.mark.proves("C-82")
def test_the_command_line_erases_too(cases: CaseStack, capsys: pytest.CaptureFixture[str]) -> None:
    api = ["--url", f"http://127.0.0.1:{cases.api.port}"]
    session = "c08/h:i"
    cases.api.trigger(session, "d-1", [(ASK, {"case": "c08-h"})])
    wrong = cli.run(capsys, "erase", session, *api, "--token", APPROVER)
    assert (wrong.code, "role erase" in wrong.err) == (1, True)
    ran = cli.run(capsys, "erase", session, *api, "--token", ERASER, "--wait", 20, "--json")
    assert (ran.code, ran.json) == (0, {"session_id": session, "status": "erased"})
    again = cli.run(capsys, "erase", session, *api, "--token", ERASER)
    assert (again.code, again.err.count("\n")) == (1, 1)
    assert f"no session {session}" in again.err
