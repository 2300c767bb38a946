"""propose_call: a live handler asks for a call, and finds it again however often it asks."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.attempts import Parked
from ledger.states import RunStatus
from tests.scripts.checking import refused, twice
from tests.support import handlers
from tests.support.ledger import COMPLETED, FAILED, UNKNOWN, Ledger, begun, key, plan, sid_of


@pytest.mark.proves("C-22", "C-44")
@pytest.mark.parametrize("level", [None, "approve"])
def test_the_same_proposal_finds_the_same_call(ledger: Ledger, level: str | None) -> None:
    run = handlers.admit(ledger)
    owned = handlers.start(ledger)
    first, second = twice(ledger, owned.proposal(0, level=level))
    assert (first.index, first.status, first.approval_id) == (second.index, second.status, second.approval_id)
    assert ledger.statuses(run) == ["waiting_for_approval" if level else "queued"]
    assert ledger.raw.zcard(key("approvals")) == (1 if level else 0)


@pytest.mark.proves("C-40", "C-44")
def test_a_decision_lets_the_owner_begin_it_and_the_report_tells_of_it(ledger: Ledger) -> None:
    run = handlers.admit(ledger)
    owned = handlers.start(ledger)
    asked = owned.propose(0, level="approve")
    assert isinstance(owned.begin(2), Parked)
    assert ledger.read(run).status is RunStatus.WAITING_FOR_APPROVAL
    ledger.decide(asked.approval_id or "")
    work = begun(owned.begin(2))
    assert (work.run_id, work.index) == (run.run_id, 0)
    ledger.settle(work, owned.token, COMPLETED, result='{"id":7}')
    told = owned.propose(0, level="approve")
    assert (told.status, told.result, told.record and told.record["status"]) == ("completed", {"id": 7}, "completed")
    assert told.logical_turn_id == work.logical_turn_id


@pytest.mark.proves("C-43")
def test_a_rule_s_answer_is_on_record_by_its_name(ledger: Ledger) -> None:
    run = handlers.admit(ledger)
    owned = handlers.start(ledger)
    for _ in range(2):
        told = owned.propose(0, level="approve", rule="small")
        assert (told.status, told.approval_id) == ("queued", None)
    words = [event.word for event in ledger.journal(run) if event.type == "approval_decided"]
    assert words == ["rule:small"]


@pytest.mark.proves("C-60", "C-11")
@pytest.mark.parametrize(
    ("status", "code"),
    [(COMPLETED, "mutation_completed"), (FAILED, "mutation_failed"), (UNKNOWN, "mutation_outcome_unknown")],
)
def test_what_is_on_record_is_refused_with_the_record_and_nobody_is_asked(
    ledger: Ledger, status: Any, code: str
) -> None:
    handlers.admit(ledger)
    owned = handlers.start(ledger)
    owned.propose(0)
    ledger.settle(begun(owned.begin(2)), owned.token, status, result='"secret"')
    told = owned.propose(1, level="approve")
    assert (told.index, told.status, told.refusal, told.approval_id, told.result) == (1, "refused", code, None, None)
    assert told.record is not None
    assert ledger.raw.zcard(key("approvals")) == 0


@pytest.mark.proves("C-71")
def test_pending_requests_are_bounded(ledger: Ledger) -> None:
    handlers.admit(ledger)
    owned = handlers.start(ledger)
    ledger.admit(plan(1, level="approve"), did="d2")
    assert owned.propose(0, level="approve", pending=1).refusal == "approvals_full"
    assert owned.propose(1, 1, level="approve", pending=2).status == "waiting_for_approval"


@pytest.mark.proves("C-30")
def test_only_the_owner_of_a_live_run_proposes(ledger: Ledger) -> None:
    handlers.admit(ledger)
    owned = handlers.start(ledger)
    stranger = handlers.Owned(ledger, owned.start, owned.token + "x")
    refused(ledger, stranger.proposal(0), "lease_lost")
    ledger.run(owned.ending())
    refused(ledger, owned.proposal(0), "run_ended")
    ledger.reclaim()
    refused(ledger, owned.proposal(0), "lease_lost")


@pytest.mark.proves("C-55")
def test_a_cancelled_run_gets_no_further_call(ledger: Ledger) -> None:
    run = handlers.admit(ledger)
    owned = handlers.start(ledger)
    owned.propose(0)
    begun(owned.begin(2))
    assert ledger.cancel(run).answer == "cancelling"
    refused(ledger, owned.proposal(1, 1), "run_ended")


@pytest.mark.proves("C-44", "C-33")
def test_after_an_owner_change_a_pending_request_is_found_and_not_asked_twice(ledger: Ledger) -> None:
    run = handlers.admit(ledger)
    asked = handlers.start(ledger).propose(0, level="approve")
    ledger.reclaim()
    again = handlers.start(ledger)
    assert again.start.earlier_starts == 1
    ledger.decide(asked.approval_id or "")
    found = again.propose(0, level="approve")
    assert (found.index, found.approval_id, found.status) == (0, asked.approval_id, "queued")
    assert begun(again.begin(2)).run_id == run.run_id
    assert len([event for event in ledger.journal(run) if event.type == "approval_requested"]) == 1


@pytest.mark.proves("C-33")
def test_a_start_that_takes_another_way_leaves_no_intent_behind(ledger: Ledger) -> None:
    run = handlers.admit(ledger)
    owned = handlers.start(ledger, replayable=True)
    owned.propose(0)
    ledger.settle(begun(owned.begin(2)), owned.token)
    owned.propose(1, 1)
    begun(owned.begin(3))
    ledger.reclaim()
    again = handlers.start(ledger, replayable=True)
    assert again.propose(0).status == "completed"
    refused(ledger, again.proposal(1, 5), "replay_diverged")
    assert ledger.statuses(run) == ["completed", "outcome_unknown"]


@pytest.mark.proves("C-33", "C-83")
def test_a_start_that_takes_another_way_before_any_intent_cancels_what_was_asked(ledger: Ledger) -> None:
    run = handlers.admit(ledger)
    asked = handlers.start(ledger).propose(0, level="approve")
    ledger.reclaim()
    again = handlers.start(ledger)
    other = again.propose(0, 5, level="approve")
    assert (other.index, ledger.statuses(run)) == (1, ["cancelled", "waiting_for_approval"])
    assert ledger.approval(asked.approval_id).state == "cancelled"
    assert ledger.where("marker-0") == []
    assert ledger.where("marker-5") == [key(f"args:{sid_of('s1')}")]


@pytest.mark.proves("C-71")
def test_the_calls_of_a_run_are_bounded(ledger: Ledger) -> None:
    run = handlers.admit(ledger)
    owned = handlers.start(ledger)
    for n in range(3):
        owned.propose(n, n)
        ledger.settle(begun(owned.begin(2 + n)), owned.token)
    ledger.rewrite(f"run:{run.run_id}", "s", {"co": 256, "i": 256})
    refused(ledger, owned.proposal(256, 300), "call_limit")
