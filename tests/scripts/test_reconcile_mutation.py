"""reconcile_mutation: a trusted host says what happened to an unknown mutation."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ledger.attempts import Begun
from ledger.outcomes import record_json
from ledger.reconciliation import Reconciled, reconcile_mutation
from ledger.states import MutationStatus
from ledger.store import ScriptCall
from ledger.store.codec import unpack_record
from tests.scripts.checking import refused, twice
from tests.support.ledger import (
    COMPLETED,
    FAILED,
    NOT_EXECUTED,
    POLICY,
    SHARDS,
    TENANT,
    UNKNOWN,
    Ledger,
    key,
    plan,
    proposed,
)

EXECUTION_STARTED = MutationStatus.EXECUTION_STARTED


def reconcile(work: Begun, *, completed: bool, **options: Any) -> ScriptCall[Reconciled]:
    turn = options.pop("turn", work.logical_turn_id)
    mutation = options.pop("mutation", work.mutation_id)
    tenant, session = options.pop("tenant", TENANT), options.pop("session", work.session_id)
    return reconcile_mutation(
        tenant, session, turn, mutation, completed=completed, by=options.pop("by", "host"), shards=SHARDS, **options
    )


def entry_field(work: Begun) -> bytes:
    return f"m{work.turn}:".encode() + bytes.fromhex(work.mutation_id)


def unknown(ledger: Ledger) -> tuple[Begun, str]:
    """A mutation whose own attempt reported that nobody can know."""
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    ledger.settle(work, token, UNKNOWN, reason="execution_timeout", next_step=2)
    return work, token


@pytest.mark.proves("C-10", "C-12", "C-22", "C-57", "C-91", "C-111")
@pytest.mark.parametrize(("completed", "status"), [(True, COMPLETED), (False, NOT_EXECUTED)])
def test_it_is_recorded_published_and_answered_the_same_again(ledger: Ledger, completed: bool, status: Any) -> None:
    work, _ = unknown(ledger)
    first, second = twice(ledger, reconcile(work, completed=completed))
    assert (first.how, second.how) == ("reconciled", "repeated")
    assert (first.record, first.revision) == (second.record, second.revision)
    entry = ledger.entry(work)
    assert (entry.status, entry.revision, entry.reason, entry.reconciled_by) == (status, 3, None, "host")
    outcome = entry.outcome()
    assert outcome is not None
    assert first.record == outcome == json.loads(ledger.outcomes()[-1]["record"])
    assert ledger.outcomes()[-1]["record"] == record_json(outcome)
    told = ledger.journal(work.run_id)[-1]
    assert (told.type, told.outcome, told.revision, told.index) == ("mutation_outcome", outcome, 3, 0)
    assert ledger.raw.zcard(key("unknowns:acme")) == 0
    assert ledger.where("marker-0") == []


@pytest.mark.proves("C-22", "C-91")
@pytest.mark.parametrize("asked_before", [False, True])
def test_sent_again_it_says_nothing_of_the_next_attempt(ledger: Ledger, asked_before: bool) -> None:
    ledger.admit(plan(1))
    work, _ = ledger.begin_first()
    ledger.reclaim()
    ledger.finish()
    if asked_before:
        ledger.reconcile(work, completed=False, dispatcher_stopped=True)
    call = reconcile(work, completed=False, dispatcher_stopped=True)
    first = ledger.run(call)
    ledger.attach(work, {"title": "known since"})
    ledger.admit(plan(1))
    second, token = ledger.begin_first()
    assert second.attempt != work.attempt
    for _ in range(2):
        again, _ = twice(ledger, call)
        assert (again.how, again.record, again.revision) == ("repeated", first.record, first.revision)
        assert ledger.status(second) in (EXECUTION_STARTED, UNKNOWN)
        ledger.settle(second, token, UNKNOWN)
    # Somebody who has seen the second attempt may say the same of it.
    assert ledger.run(reconcile(second, completed=False)).how == "reconciled"
    assert ledger.run(call).record == first.record


@pytest.mark.proves("C-22")
def test_an_entry_keeps_only_the_last_requests(ledger: Ledger) -> None:
    work, _ = unknown(ledger)
    for _ in range(9):
        ledger.reconcile(work, completed=False)
    kept = unpack_record("entry", ledger.raw.hget(key(f"session:{work.sid}"), entry_field(work)))["rq"]
    assert len(kept) == 4


@pytest.mark.proves("C-91")
def test_what_was_reconciled_cannot_be_reconciled_otherwise(ledger: Ledger) -> None:
    work, _ = unknown(ledger)
    ledger.run(reconcile(work, completed=True))
    refused(ledger, reconcile(work, completed=False, dispatcher_stopped=True), "not_reconcilable")


@pytest.mark.proves("C-91")
@pytest.mark.parametrize("status", [COMPLETED, FAILED, NOT_EXECUTED])
@pytest.mark.parametrize("completed", [True, False])
def test_only_unknown_and_started_entries_can_be_reconciled(ledger: Ledger, status: Any, completed: bool) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    ledger.settle(work, token, status)
    refused(ledger, reconcile(work, completed=completed, dispatcher_stopped=True), "not_reconcilable")


@pytest.mark.proves("C-91")
def test_a_started_attempt_may_be_running(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, _ = ledger.begin_first()
    refused(ledger, reconcile(work, completed=True), "attempt_may_be_running")
    refused(ledger, reconcile(work, completed=True, dispatcher_stopped=True), "attempt_may_be_running")
    refused(ledger, reconcile(work, completed=False), "attempt_may_be_running")
    ledger.run(reconcile(work, completed=False, dispatcher_stopped=True))
    assert ledger.entry(work).reconciled_by == "host (dispatcher stopped)"


@pytest.mark.proves("C-91")
def test_an_unknown_one_may_be_running_until_its_not_after(ledger: Ledger) -> None:
    tight = replace(POLICY, tool_timeout_ms=10, drain_ms=10, lease_ms=2_000)
    ledger.admit(plan(1))
    work, _ = ledger.begin_first(policy=tight)
    ledger.reclaim()
    assert ledger.entry(work).not_after == work.deadline + 2_010
    refused(ledger, reconcile(work, completed=False), "attempt_may_be_running")
    ledger.outlast(ledger.entry(work).not_after - ledger.now() + 1)
    assert ledger.run(reconcile(work, completed=False)).how == "reconciled"


@pytest.mark.proves("C-91")
def test_completed_needs_no_waiting_once_it_is_stored_unknown(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, _ = ledger.begin_first()
    ledger.reclaim()
    assert ledger.run(reconcile(work, completed=True)).how == "reconciled"


@pytest.mark.proves("C-91")
def test_an_earlier_attempt_s_report_does_not_end_the_wait_for_a_later_one(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    ledger.settle(work, token, NOT_EXECUTED, next_step=2)
    ledger.admit(plan(1))
    ledger.begin_first()
    refused(ledger, reconcile(work, completed=False), "attempt_may_be_running")
    ledger.reclaim()
    refused(ledger, reconcile(work, completed=False), "attempt_may_be_running")


@pytest.mark.proves("C-91", "C-13")
def test_restored_to_approved_it_needs_a_fresh_approval(ledger: Ledger) -> None:
    run = ledger.admit([proposed(1, level="approve")]).run
    ledger.approve_all(run)
    work, token = ledger.begin_first()
    ledger.settle(work, token, UNKNOWN, next_step=2)
    assert ledger.admit([proposed(1, level="approve")]).run.calls[0].refusal == "mutation_outcome_unknown"
    ledger.run(reconcile(work, completed=False))
    again = ledger.admit([proposed(1, level="approve")]).run
    assert ledger.statuses(again) == ["waiting_for_approval"]
    ledger.approve_all(again)
    second, _ = ledger.begin_first()
    assert (second.logical_turn_id, ledger.entry(second).reconciled_by) == (work.logical_turn_id, None)


def test_what_is_not_there_is_not_found(ledger: Ledger) -> None:
    work, _ = unknown(ledger)
    turn = work.logical_turn_id or ""
    others: list[dict[str, str]] = [
        {"session": "s9"},
        {"tenant": "other"},
        {"turn": turn[:-1] + "9"},
        {"turn": "x"},
        {"turn": "01" + turn[2:]},
        {"mutation": "0" * 64},
    ]
    for other in others:
        refused(ledger, reconcile(work, completed=True, **other), "not_found")


@pytest.mark.proves("C-91")
def test_it_needs_no_run_any_more(ledger: Ledger) -> None:
    work, _ = unknown(ledger)
    ledger.raw.delete(key(f"run:{work.run_id}"), key(f"run:{work.run_id}:journal"))
    assert ledger.run(reconcile(work, completed=True)).how == "reconciled"
    assert not ledger.raw.exists(key(f"run:{work.run_id}:journal"))
