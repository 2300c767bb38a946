"""settle_attempt: what an attempt came to, and the session's next call in the same step."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ledger.attempts import Begun, Settled, Settlement, begin_next, settle_attempt
from ledger.erasure import erase_session
from ledger.outcomes import record_json
from ledger.states import MutationStatus, RunStatus
from ledger.store import ScriptCall
from tests.scripts.checking import refused, twice
from tests.support.ledger import (
    COMPLETED,
    FAILED,
    NOT_EXECUTED,
    POLICY,
    SHARD,
    SHARDS,
    TENANT,
    UNKNOWN,
    Ledger,
    begun,
    delivery,
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


@pytest.mark.proves("C-10", "C-12", "C-111")
@pytest.mark.parametrize("status", [COMPLETED, FAILED, UNKNOWN, NOT_EXECUTED])
def test_status_revision_stream_and_journal_change_in_one_step(ledger: Ledger, status: MutationStatus) -> None:
    run = ledger.admit(plan(1)).run
    work, token = ledger.begin_first()
    settled = ledger.run(report(work, token, status))
    entry = ledger.entry(work)
    assert (settled.how, entry.status, entry.revision, settled.revision) == ("settled", status, 2, 2)
    outcome = entry.outcome()
    assert outcome is not None
    assert settled.record == record_json(outcome)
    assert ledger.outcomes() == [
        {
            "tenant": "acme",
            "session_id": "s1",
            "logical_turn_id": work.logical_turn_id,
            "mutation_id": work.mutation_id,
            "mutation_revision": "2",
            "record": settled.record,
        }
    ]
    told = next(event for event in ledger.journal(run) if event.type == "mutation_outcome")
    assert (told.outcome, told.revision, told.index) == (outcome, 2, 0)
    assert ledger.statuses(run) == [CALL_STATUS[status]]


@pytest.mark.proves("C-111")
def test_a_recorded_intent_is_not_published(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    ledger.begin_first()
    assert ledger.outcomes() == []


@pytest.mark.proves("C-22")
@pytest.mark.parametrize("status", [COMPLETED, FAILED, UNKNOWN, NOT_EXECUTED])
@pytest.mark.parametrize("protected", [True, False])
def test_sent_again_it_settles_nothing_more(ledger: Ledger, status: MutationStatus, protected: bool) -> None:
    ledger.admit([proposed(0, protected=protected)])
    work, token = ledger.begin_first()
    first, second = twice(ledger, report(work, token, status, result='{"id":7}'))
    assert (first.how, second.how) == ("settled", "repeated")
    assert (second.record, second.revision) == (first.record, first.revision)


@pytest.mark.proves("C-22", "C-24")
@pytest.mark.parametrize("protected", [True, False])
def test_sent_again_with_a_next_call_it_begins_the_same_attempt(ledger: Ledger, protected: bool) -> None:
    ledger.admit([proposed(n, protected=protected) for n in range(2)])
    work, token = ledger.begin_first()
    first, second = twice(ledger, report(work, token, next_step=2))
    assert replace(begun(first.work), store_now=0) == replace(begun(second.work), store_now=0)


@pytest.mark.proves("C-22")
def test_sent_again_after_it_began_the_same_mutation_anew_it_is_answered_the_same(ledger: Ledger) -> None:
    ledger.admit([proposed(1), proposed(1)], on_error="continue")
    work, token = ledger.begin_first()
    first, second = twice(ledger, report(work, token, NOT_EXECUTED, reason="pre_dispatch_deadline", next_step=2))
    assert (first.how, second.how) == ("settled", "repeated")
    assert (first.record, first.revision) == (second.record, second.revision)
    assert replace(begun(first.work), store_now=0) == replace(begun(second.work), store_now=0)
    refused(ledger, report(work, token, COMPLETED), "attempt_mismatch")


@pytest.mark.proves("C-22", "C-31")
def test_sent_again_after_it_gave_the_session_up_it_says_so_again(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    first, second = twice(ledger, report(work, token, next_step=2))
    assert (why(first.work), why(second.work)) == ("released", "released")
    assert ledger.raw.zcard(key("owned")) == ledger.raw.zcard(key("ready")) == 0


@pytest.mark.proves("C-22", "C-31")
def test_sent_again_after_another_owner_came_it_says_lost(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    call = report(work, token, next_step=2)
    ledger.run(call)
    ledger.admit(plan(1), did="d2")
    ledger.begin_first()
    _, again = twice(ledger, call)
    assert (again.how, why(again.work)) == ("repeated", "lost")


@pytest.mark.proves("C-22", "C-10")
@pytest.mark.parametrize("reported", [COMPLETED, FAILED, UNKNOWN, NOT_EXECUTED])
def test_a_first_settlement_cannot_be_changed_by_a_second(ledger: Ledger, reported: MutationStatus) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    ledger.settle(work, token, reported)
    for other in (COMPLETED, FAILED, UNKNOWN, NOT_EXECUTED):
        _, again = twice(ledger, report(work, token, other))
        assert (again.how, ledger.status(work)) == ("repeated", reported)


@pytest.mark.proves("C-30")
def test_another_attempt_s_token_settles_nothing(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    for wrong in (work.attempt + "0", work.attempt[:-1], "", token):
        refused(ledger, report(replace(work, attempt=wrong), token), "attempt_mismatch")
    other = replace(work, mutation=b"\0" * 32)
    refused(ledger, report(other, token), "attempt_mismatch")
    refused(ledger, report(replace(work, turn=9), token), "attempt_mismatch")


@pytest.mark.proves("C-23")
def test_an_attempt_that_was_put_back_settles_nothing(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    ledger.void(work, token, 2)
    refused(ledger, report(work, token), "attempt_mismatch")


@pytest.mark.proves("C-82")
def test_a_settlement_cannot_write_an_erased_session_back(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    ledger.run(erase_session(TENANT, "s1", 60_000, SHARDS))
    refused(ledger, report(work, token, next_step=2), "attempt_mismatch")
    ledger.admit(plan(1), did="d2")
    ledger.begin_first()
    refused(ledger, report(work, token, next_step=2), "attempt_mismatch")


@pytest.mark.proves("C-24")
def test_a_settlement_counts_though_the_next_begin_is_refused(ledger: Ledger) -> None:
    ledger.admit(plan(2))
    work, token = ledger.begin_first()
    second = begun(ledger.settle(work, token, next_step=5).work)
    settled = ledger.run(report(second, token, next_step=4))
    assert (settled.how, settled.work, settled.refused) == ("settled", None, "STALE_STEP")
    assert ledger.status(second) is COMPLETED


@pytest.mark.proves("C-24", "C-31")
def test_a_late_settlement_begins_nothing_beside_the_call_in_flight(ledger: Ledger) -> None:
    ledger.admit(plan(2))
    work, token = ledger.begin_first()
    ledger.settle(work, token, next_step=2)
    again = ledger.run(report(work, token, next_step=3))
    assert (again.how, again.work, again.refused) == ("repeated", None, "CALL_IN_FLIGHT")


@pytest.mark.proves("C-24")
def test_a_settlement_counts_though_the_next_record_cannot_be_read(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    other = ledger.admit(plan(1), did="d2").run
    stored = ledger.raw.hget(key(f"run:{other.run_id}"), "m")
    ledger.raw.hset(key(f"run:{other.run_id}"), "m", b"\x02" + stored[1:])
    settled = ledger.run(report(work, token, next_step=2))
    assert (settled.how, settled.work, settled.refused) == ("settled", None, "FORMAT_TOO_NEW")
    assert ledger.status(work) is COMPLETED


@pytest.mark.proves("C-33")
def test_a_plan_ends_by_its_calls_and_on_error(ledger: Ledger) -> None:
    def play(on_error: str, statuses: list[MutationStatus]) -> tuple[str, list[str]]:
        run = ledger.admit(plan(3), session=f"s-{on_error}", on_error=on_error).run
        work: Any
        work, token = ledger.begin_first()
        for step, status in enumerate(statuses, start=2):
            work = ledger.settle(work, token, status, next_step=step).work
        return ledger.read(run).status.value, ledger.statuses(run)

    assert play("stop", [COMPLETED, UNKNOWN]) == ("failed", ["completed", "outcome_unknown", "skipped"])
    assert play("continue", [FAILED, COMPLETED, COMPLETED]) == ("failed", ["failed", "completed", "completed"])


def test_an_end_by_error_cancels_the_requests_that_are_left(ledger: Ledger) -> None:
    run = ledger.admit([proposed(0), proposed(1, level="approve"), proposed(2, level="approve")]).run
    ledger.decide(run.calls[2].approval_id or "")
    work, token = ledger.begin_first()
    ledger.settle(work, token, FAILED, next_step=2)
    assert ledger.approval(run.calls[1].approval_id).state == "cancelled"
    assert ledger.statuses(run) == ["failed", "skipped", "skipped"]
    assert ledger.raw.zcard(key("approvals")) == ledger.raw.hlen(key("asked")) == 0


def test_a_denial_of_a_later_call_takes_effect_when_its_turn_comes(ledger: Ledger) -> None:
    run = ledger.admit([proposed(0), proposed(1, level="approve"), proposed(2)]).run
    work, token = ledger.begin_first()
    ledger.decide(run.calls[1].approval_id or "", "deny")
    assert ledger.statuses(run) == ["running", "denied", "queued"]
    ledger.settle(work, token, next_step=2)
    assert (ledger.statuses(run), ledger.read(run).status) == (["completed", "denied", "skipped"], RunStatus.FAILED)


@pytest.mark.proves("C-83")
@pytest.mark.parametrize("status", [COMPLETED, FAILED, NOT_EXECUTED, UNKNOWN])
@pytest.mark.parametrize("protected", [True, False])
def test_arguments_go_when_the_call_ends_unless_its_outcome_is_unknown(
    ledger: Ledger, status: MutationStatus, protected: bool
) -> None:
    ledger.admit([proposed(0, protected=protected)])
    work, token = ledger.begin_first()
    assert ledger.where("marker-0") == [key(f"args:{SID}")]
    ledger.settle(work, token, status, next_step=2)
    kept = status is UNKNOWN and protected
    assert ledger.where("marker-0") == ([key(f"args:{SID}")] if kept else [])


@pytest.mark.proves("C-83")
def test_arguments_of_an_unknown_go_with_a_late_report_though_its_run_is_gone(ledger: Ledger) -> None:
    run = ledger.admit(plan(1)).run
    work, token = ledger.begin_first()
    ledger.reclaim()
    ledger.finish()
    assert ledger.where("marker-0") == [key(f"args:{SID}")]
    ledger.raw.delete(key(f"run:{run.run_id}"), key(f"run:{run.run_id}:journal"))
    assert ledger.run(report(work, token)).how == "late"
    assert ledger.where("marker-0") == []
    assert not ledger.raw.exists(key(f"run:{run.run_id}"), key(f"run:{run.run_id}:journal"))


@pytest.mark.proves("C-57", "C-100")
@pytest.mark.parametrize(
    ("status", "reason", "shown"),
    [
        (UNKNOWN, "execution_timeout", "execution_timeout"),
        (NOT_EXECUTED, "pre_dispatch_deadline", "pre_dispatch_deadline"),
        (NOT_EXECUTED, "execution_timeout", None),
        (COMPLETED, "execution_timeout", None),
        (FAILED, 'it"failed', None),
    ],
)
def test_only_a_timeout_s_reason_is_published_and_only_with_its_status(
    ledger: Ledger, status: MutationStatus, reason: str, shown: str | None
) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    settled = ledger.run(report(work, token, status, reason=reason))
    assert settled.record is not None
    assert json.loads(settled.record).get("reason") == shown
    outcome = ledger.entry(work).outcome()
    assert outcome is not None
    assert record_json(outcome) == settled.record == ledger.outcomes()[0]["record"]


@pytest.mark.proves("C-57")
def test_a_fresh_attempt_clears_the_reason(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    ledger.settle(work, token, NOT_EXECUTED, reason="pre_dispatch_deadline", next_step=2)
    assert ledger.entry(work).reason == "pre_dispatch_deadline"
    ledger.admit(plan(1))
    ledger.begin_first()
    assert ledger.entry(work).reason is None


def test_a_result_is_kept_with_the_run(ledger: Ledger) -> None:
    run = ledger.admit(plan(2), on_error="continue").run
    work, token = ledger.begin_first()
    work = begun(ledger.settle(work, token, result='{"id":7}', next_step=2).work)
    ledger.settle(work, token, NOT_EXECUTED, refusal="unknown_tool")
    first, second = ledger.read(run).calls
    assert (first.result, second.result, second.refusal) == ({"id": 7}, None, "unknown_tool")


@pytest.mark.proves("C-55")
def test_a_cancelled_run_ends_cancelled_when_its_call_reports(ledger: Ledger) -> None:
    run = ledger.admit(plan(2)).run
    work, token = ledger.begin_first()
    assert ledger.cancel(run).answer == "cancelling"
    assert why(ledger.settle(work, token, next_step=2).work) == "released"
    assert (ledger.statuses(run), ledger.read(run).status) == (["completed", "cancelled"], RunStatus.CANCELLED)


def test_the_next_run_of_the_session_begins_in_the_same_step(ledger: Ledger) -> None:
    one = ledger.admit(plan(1), did="d1").run
    other = ledger.admit(plan(1), did="d2").run
    work, token = ledger.begin_first()
    following = begun(ledger.settle(work, token, next_step=2).work)
    assert (following.run_id, ledger.read(one).status) == (other.run_id, RunStatus.COMPLETED)
    assert following.logical_turn_id != work.logical_turn_id
    call = begin_next(SHARD, SID, token, 3, POLICY)
    refused(ledger, call, "call_in_flight")
    assert delivery().delivery_id == "d1"
