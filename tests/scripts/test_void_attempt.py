"""void_attempt: an intent that was not confirmed in time goes back, and nothing outruns the put-back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledger.attempts import Voided, begin_next, void_attempt
from ledger.outcomes import record_json
from ledger.states import RunStatus
from ledger.store import ScriptCall
from tests.scripts.checking import refused, twice
from tests.support.ledger import (
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
CODE = "mutation_checkpoint_unavailable"


def put_back(token: str, step: int, attempt: str, **options: Any) -> ScriptCall[Voided]:
    return void_attempt(SHARD, SID, token, step, attempt, refusal=CODE, **options)


@pytest.mark.proves("C-23", "C-22", "C-111")
def test_a_landed_intent_goes_back_to_approved_and_is_told(ledger: Ledger) -> None:
    run = ledger.admit(plan(1)).run
    work, token = ledger.begin_first()
    first, second = twice(ledger, put_back(token, 2, work.attempt))
    assert (first.how, second.how) == ("voided", "repeated")
    assert (first.record, first.revision) == (second.record, second.revision)
    outcome = ledger.entry(work).outcome()
    assert outcome is not None
    assert first.record == record_json(outcome) == ledger.outcomes()[0]["record"]
    assert json.loads(first.record)["status"] == "not_executed"
    assert (ledger.status(work), first.revision) == (NOT_EXECUTED, 2)
    assert [(call.status, call.refusal) for call in ledger.read(run).calls] == [("not_executed", CODE)]
    assert ledger.where("marker-0") == []


@pytest.mark.proves("C-23")
def test_it_outruns_a_begin_that_is_still_on_its_way(ledger: Ledger) -> None:
    ledger.admit(plan(1), did="first")
    work, token = ledger.begin_first()
    ledger.admit(plan(1), did="d2")
    ledger.settle(work, token)
    first, second = twice(ledger, put_back(token, 3, f"{token}-2"))
    assert (first.how, first.record, second.how) == ("nothing", None, "repeated")
    refused(ledger, begin_next(SHARD, SID, token, 2, POLICY), "stale_step")
    refused(ledger, begin_next(SHARD, SID, token, 3, POLICY), "stale_step")
    assert begun(ledger.begin(SID, token, 4)).step == 4


@pytest.mark.proves("C-23", "C-13")
def test_the_approval_of_a_voided_attempt_stays_consumed(ledger: Ledger) -> None:
    run = ledger.admit([proposed(1, level="approve")]).run
    ledger.approve_all(run)
    work, token = ledger.begin_first()
    ledger.run(put_back(token, 2, work.attempt))
    ledger.reopen(run, 0)
    assert why(ledger.begin(SID, token, 3)) == "released"
    assert ledger.read(run).calls[0].refusal == "approval_not_fresh"
    again = ledger.admit([proposed(1, level="approve")])
    assert (again.how, again.run.status) == ("redelivered", RunStatus.WAITING_FOR_APPROVAL)


@pytest.mark.proves("C-23")
def test_a_voided_attempt_never_begins_again(ledger: Ledger) -> None:
    ledger.admit(plan(2), on_error="continue")
    work, token = ledger.begin_first()
    ledger.run(put_back(token, 2, work.attempt))
    refused(ledger, begin_next(SHARD, SID, token, 1, POLICY), "stale_step")
    refused(ledger, begin_next(SHARD, SID, token, 2, POLICY), "stale_step")
    assert begun(ledger.begin(SID, token, 3)).index == 1


@pytest.mark.proves("C-23", "C-30")
def test_only_the_owner_puts_back_and_only_with_a_greater_step(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    refused(ledger, put_back(token + "x", 2, work.attempt), "lease_lost")
    refused(ledger, put_back(token, 1, work.attempt), "stale_step")
    ledger.reclaim()
    refused(ledger, put_back(token, 2, work.attempt), "lease_lost")
    assert ledger.status(work) is UNKNOWN


@pytest.mark.proves("C-23")
def test_another_attempt_is_not_touched(ledger: Ledger) -> None:
    run = ledger.admit(plan(1)).run
    work, token = ledger.begin_first()
    assert ledger.run(put_back(token, 2, f"{token}-9")).how == "nothing"
    assert ledger.statuses(run) == ["running"]
    assert ledger.settle(work, token).how == "settled"


@pytest.mark.proves("C-22", "C-23")
def test_an_unprotected_call_goes_back_too(ledger: Ledger) -> None:
    run = ledger.admit([proposed(0, protected=False)]).run
    work, token = ledger.begin_first()
    first, second = twice(ledger, put_back(token, 2, work.attempt))
    assert (first.how, first.record, second.how) == ("voided", None, "repeated")
    assert (ledger.statuses(run), ledger.outcomes()) == (["not_executed"], [])


@pytest.mark.proves("C-91")
def test_what_somebody_reconciled_meanwhile_is_not_published_again(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    ledger.reconcile(work, completed=False, dispatcher_stopped=True)
    voided = ledger.run(put_back(token, 2, work.attempt))
    assert (voided.record, len(ledger.outcomes())) == (None, 1)


@pytest.mark.proves("C-23", "C-33")
def test_an_owner_that_dies_after_the_put_back_leaves_nothing_unknown(ledger: Ledger) -> None:
    run = ledger.admit(plan(2), on_error="continue").run
    work, token = ledger.begin_first()
    ledger.run(put_back(token, 2, work.attempt))
    ledger.reclaim()
    assert ledger.status(work) is NOT_EXECUTED
    following, _ = ledger.begin_first()
    assert (following.run_id, following.index) == (run.run_id, 1)
    assert ledger.raw.zcard(key("unknowns:acme")) == 0


@pytest.mark.proves("C-23", "C-32")
def test_a_mutation_put_back_once_can_be_reported_late_in_its_next_attempt(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    ledger.run(put_back(token, 2, work.attempt))
    assert why(ledger.begin(SID, token, 3)) == "released"
    ledger.admit(plan(1))
    second, second_token = ledger.begin_first()
    ledger.reclaim()
    assert ledger.settle(second, second_token).how == "late"
