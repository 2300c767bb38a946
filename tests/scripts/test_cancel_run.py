"""cancel_run: what was not begun never begins; what was is left to its owner."""

from __future__ import annotations

import pytest

from ledger.runs import cancel_run
from ledger.states import RunStatus
from tests.scripts.checking import twice, unchanged
from tests.support.ledger import (
    FAILED,
    SHARD,
    TENANT,
    UNKNOWN,
    Ledger,
    key,
    plan,
    proposed,
    sid_of,
    why,
)


@pytest.mark.proves("C-55", "C-40", "C-83")
def test_a_run_not_begun_ends_with_its_requests_and_arguments(ledger: Ledger) -> None:
    run = ledger.admit(plan(2, level="approve")).run
    first, second = twice(ledger, cancel_run(SHARD, run.run_id, TENANT))
    assert (first.answer, second.answer, first.run) == ("cancelled", "cancelled", second.run)
    assert (ledger.statuses(run), ledger.read(run).status) == (["cancelled", "cancelled"], RunStatus.CANCELLED)
    assert {ledger.approval(call.approval_id).state for call in run.calls} == {"cancelled"}
    assert ledger.raw.zcard(key("approvals")) == ledger.raw.zcard(key("pending:acme")) == 0
    assert (ledger.where("marker-"), ledger.outcomes()) == ([], [])


@pytest.mark.proves("C-55")
@pytest.mark.parametrize("protected", [True, False])
def test_a_call_in_flight_is_left_to_its_owner_who_is_told(ledger: Ledger, protected: bool) -> None:
    run = ledger.admit([proposed(0, protected=protected), proposed(1, level="approve"), proposed(2)]).run
    ledger.begin_first()
    first, second = twice(ledger, cancel_run(SHARD, run.run_id, TENANT))
    assert (first.answer, second.answer) == ("cancelling", "cancelling")
    assert ledger.statuses(run) == ["running", "cancelled", "cancelled"]
    assert ledger.read(run).status is RunStatus.RUNNING


@pytest.mark.proves("C-55", "C-33")
@pytest.mark.parametrize("protected", [True, False])
def test_a_cancelled_call_whose_owner_dies_is_not_begun_again(ledger: Ledger, protected: bool) -> None:
    run = ledger.admit([proposed(0, protected=protected)]).run
    ledger.begin_first()
    ledger.cancel(run)
    ledger.reclaim()
    assert [why(claimed.work) for claimed in ledger.claim()] == ["released"]
    assert (ledger.statuses(run), ledger.read(run).status) == (["outcome_unknown"], RunStatus.CANCELLED)


@pytest.mark.proves("C-55")
def test_between_two_calls_nothing_more_is_begun(ledger: Ledger) -> None:
    run = ledger.admit(plan(2)).run
    work, token = ledger.begin_first()
    ledger.settle(work, token)
    assert ledger.cancel(run).answer == "cancelled"
    assert why(ledger.begin(sid_of("s1"), token, 2)) == "released"
    assert (ledger.statuses(run), ledger.read(run).status) == (["completed", "cancelled"], RunStatus.CANCELLED)


@pytest.mark.proves("C-55")
def test_a_run_that_ended_by_itself_is_not_changed(ledger: Ledger) -> None:
    for n, status in enumerate((FAILED, UNKNOWN)):
        run = ledger.admit(plan(1), did=f"d{n}").run
        ledger.finish(status)
        before = ledger.read(run)
        first, _ = twice(ledger, cancel_run(SHARD, run.run_id, TENANT))
        assert (first.answer, ledger.read(run)) == ("ended", before)


@pytest.mark.proves("C-41")
def test_what_ran_out_before_the_cancel_ended_by_expiry(ledger: Ledger) -> None:
    run = ledger.admit(plan(1, level="approve"), limits={"approval_ms": 1}).run
    ledger.outlast_requests()
    assert ledger.cancel(run).answer == "ended"
    assert (ledger.statuses(run), ledger.read(run).status) == (["expired"], RunStatus.FAILED)


def test_another_tenant_s_run_is_unknown(ledger: Ledger) -> None:
    run = ledger.admit(plan(1)).run
    for run_id, tenant in ((run.run_id, "other"), ("00" + "0" * 32, TENANT)):
        answer = unchanged(ledger, cancel_run(SHARD, run_id, tenant))
        assert (answer.answer, answer.run) == ("unknown", None)
