"""settle_attempt after something else came first: a reclaim, a reconciliation, an erasure of what is in flight."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ledger.attempts import Begun, Settled, Settlement, settle_attempt
from ledger.states import MutationStatus, RunStatus
from ledger.store import ScriptCall
from tests.scripts.checking import refused, twice
from tests.support.ledger import (
    COMPLETED,
    FAILED,
    NOT_EXECUTED,
    POLICY,
    SHARD,
    UNKNOWN,
    Ledger,
    begun,
    key,
    plan,
    proposed,
    sid_of,
    why,
)

SID = sid_of("s1")
CALL_STATUS = {COMPLETED: "completed", FAILED: "failed", UNKNOWN: "outcome_unknown", NOT_EXECUTED: "not_executed"}


def report(
    work: Begun, token: str, status: MutationStatus = COMPLETED, *, next_step: int | None = None, **options: Any
) -> ScriptCall[Settled]:
    settlement = Settlement(status, **options)
    return settle_attempt(SHARD, work, token, settlement, next_step=next_step, policy=POLICY)


@pytest.mark.proves("C-32", "C-10")
@pytest.mark.parametrize("status", [COMPLETED, FAILED, NOT_EXECUTED])
def test_a_first_hand_report_after_reclaim_wins_once(ledger: Ledger, status: MutationStatus) -> None:
    run = ledger.admit(plan(1)).run
    work, token = ledger.begin_first()
    ledger.reclaim()
    assert (ledger.status(work), ledger.statuses(run)) == (UNKNOWN, ["outcome_unknown"])
    first, second = twice(ledger, report(work, token, status, next_step=2))
    assert (first.how, why(first.work), second.how) == ("late", "lost", "repeated")
    assert (ledger.status(work), ledger.statuses(run)) == (status, [CALL_STATUS[status]])
    assert [json.loads(row["record"])["status"] for row in ledger.outcomes()] == [
        "outcome_unknown",
        CALL_STATUS[status],
    ]
    third = ledger.run(report(work, token, FAILED if status is COMPLETED else COMPLETED))
    assert (third.how, ledger.status(work)) == ("repeated", status)


@pytest.mark.proves("C-32")
def test_a_first_hand_report_also_wins_while_another_worker_owns_the_session(ledger: Ledger) -> None:
    ledger.admit(plan(2), on_error="continue")
    work, token = ledger.begin_first()
    ledger.reclaim()
    other, other_token = ledger.begin_first()
    assert ledger.run(report(work, token, next_step=2)).how == "late"
    assert ledger.status(work) is COMPLETED
    assert ledger.settle(other, other_token).how == "settled"


@pytest.mark.proves("C-91")
def test_a_late_report_of_unknown_says_that_the_attempt_is_over(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    ledger.reclaim()
    first, second = twice(ledger, report(work, token, UNKNOWN, reason="execution_timeout"))
    assert (first.how, second.how, len(ledger.outcomes())) == ("repeated", "repeated", 1)
    assert ledger.reconcile(work, completed=False).how == "reconciled"


@pytest.mark.proves("C-91", "C-10")
@pytest.mark.parametrize("completed", [True, False])
def test_a_report_after_reconciliation_is_kept_and_changes_nothing(ledger: Ledger, completed: bool) -> None:
    run = ledger.admit(plan(1)).run
    work, token = ledger.begin_first()
    ledger.reclaim()
    ledger.reconcile(work, completed=completed, dispatcher_stopped=True)
    before = ledger.entry(work)
    statuses = ledger.statuses(run)
    first, second = twice(ledger, report(work, token, FAILED))
    assert (first.how, second.how) == ("kept", "kept")
    kept = replace(before, late_report=FAILED)
    assert (ledger.entry(work), ledger.statuses(run), len(ledger.outcomes())) == (kept, statuses, 2)
    # Raised once, however often the report is sent.
    assert ledger.raw.hget(key("counts"), "late_reports:f") == b"1"


@pytest.mark.proves("C-91")
def test_a_report_of_an_attempt_said_not_to_be_executed_raises_the_alarm_after_the_next_one_began(
    ledger: Ledger,
) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    ledger.reclaim()
    ledger.reconcile(work, completed=False, dispatcher_stopped=True)
    ledger.finish()
    ledger.admit(plan(1))
    second, second_token = ledger.begin_first()
    first_report, again = twice(ledger, report(work, token, COMPLETED))
    assert (first_report.how, again.how) == ("kept", "kept")
    assert ledger.raw.hgetall(key("counts")) == {b"reclaimed": b"1", b"late_reports:c": b"1"}
    assert (ledger.entry(work).late_report, ledger.status(work)) == (COMPLETED, MutationStatus.EXECUTION_STARTED)
    assert ledger.settle(second, second_token, FAILED).how == "settled"
    assert (ledger.status(work), ledger.entry(work).late_report) == (FAILED, COMPLETED)


@pytest.mark.proves("C-91")
@pytest.mark.parametrize("since", ["put back", "not executed"])
@pytest.mark.parametrize("status", [COMPLETED, FAILED, NOT_EXECUTED])
def test_it_raises_the_alarm_too_when_another_attempt_came_to_nothing_since(
    ledger: Ledger, since: str, status: MutationStatus
) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    ledger.reclaim()
    ledger.reconcile(work, completed=False, dispatcher_stopped=True)
    ledger.finish()
    for _ in range(2):
        ledger.admit(plan(1))
        again, again_token = ledger.begin_first()
        if since == "put back":
            ledger.void(again, again_token, 2)
            ledger.begin(SID, again_token, 3)
        else:
            ledger.settle(again, again_token, NOT_EXECUTED, next_step=2)
    ledger.admit(plan(1))
    third, _ = ledger.begin_first()
    first, second = twice(ledger, report(work, token, status))
    assert (first.how, second.how, ledger.status(third)) == ("kept", "kept", MutationStatus.EXECUTION_STARTED)
    code = {COMPLETED: "c", FAILED: "f", NOT_EXECUTED: "a"}[status]
    assert ledger.raw.hget(key("counts"), f"late_reports:{code}") == b"1"


@pytest.mark.proves("C-91", "C-22")
def test_one_that_raised_it_before_the_next_attempt_began_raises_it_no_second_time(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    ledger.reclaim()
    ledger.reconcile(work, completed=False, dispatcher_stopped=True)
    ledger.finish()
    call = report(work, token, COMPLETED)
    assert ledger.run(call).how == "kept"
    ledger.admit(plan(1))
    ledger.begin_first()
    first, second = twice(ledger, call)
    assert (first.how, second.how) == ("kept", "kept")
    assert ledger.raw.hget(key("counts"), "late_reports:c") == b"1"


@pytest.mark.proves("C-91", "C-13")
@pytest.mark.parametrize("end", ["report", "owner lost", "put back"])
def test_a_call_reconciled_while_in_flight_is_never_dispatched_again_by_its_run(ledger: Ledger, end: str) -> None:
    run = ledger.admit(plan(1)).run
    work, token = ledger.begin_first()
    ledger.reconcile(work, completed=False, dispatcher_stopped=True)
    if end == "report":
        assert why(ledger.settle(work, token, next_step=2).work) == "released"
    elif end == "put back":
        ledger.void(work, token, 2)
        assert why(ledger.begin(SID, token, 3)) == "released"
    else:
        ledger.reclaim()
        (claimed,) = ledger.claim()
        assert why(claimed.work) == "released"
    assert (ledger.statuses(run), ledger.read(run).status) == (["not_executed"], RunStatus.FAILED)
    assert ledger.status(work) is NOT_EXECUTED


@pytest.mark.proves("C-32", "C-91")
def test_what_an_earlier_attempt_left_says_nothing_about_a_later_one(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    ledger.settle(work, token, NOT_EXECUTED, next_step=2)
    ledger.admit(plan(1))
    second, second_token = ledger.begin_first()
    refused(ledger, report(work, token), "attempt_mismatch")
    ledger.reclaim()
    assert ledger.run(report(second, second_token)).how == "late"
    assert ledger.status(work) is COMPLETED


@pytest.mark.proves("C-22")
@pytest.mark.parametrize("attached", ["", "before", "between", "since", "between since"])
def test_a_repeat_of_a_put_back_tells_what_it_was_told(ledger: Ledger, attached: str) -> None:
    ledger.admit(plan(2), on_error="continue")
    work, token = ledger.begin_first()
    if "before" in attached:
        ledger.attach(work, {"title": "before"})
    call = report(work, token, NOT_EXECUTED, reason="pre_dispatch_deadline", next_step=2)
    first = ledger.run(call)
    if "between" in attached:
        ledger.attach(work, {"title": "between"})
    _, again = twice(ledger, call)
    assert (again.how, again.record, again.revision) == ("repeated", first.record, first.revision)
    ledger.settle(begun(first.work), token, next_step=3)
    ledger.admit(plan(2), on_error="continue")
    second, _ = ledger.begin_first()
    if "since" in attached:
        ledger.attach(second, {"title": "since"})
    _, again = twice(ledger, call)
    assert (again.how, again.record, again.revision) == ("repeated", first.record, first.revision)
    assert ledger.status(second) is MutationStatus.EXECUTION_STARTED


@pytest.mark.proves("C-33")
def test_an_unprotected_call_settled_after_its_session_was_reclaimed_changes_nothing(ledger: Ledger) -> None:
    run = ledger.admit([proposed(0, protected=False)]).run
    work, token = ledger.begin_first()
    ledger.reclaim()
    assert ledger.statuses(run) == ["queued"]
    _, again = twice(ledger, report(work, token, next_step=2))
    assert (again.how, ledger.statuses(run)) == ("repeated", ["queued"])
    other, _ = ledger.begin_first()
    _, again = twice(ledger, report(work, token))
    assert (again.how, ledger.statuses(run), other.attempt != work.attempt) == ("repeated", ["running"], True)
