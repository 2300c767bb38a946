"""begin_next: every check, the consumed approval and the intent in one step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger.attempts import Work, begin_next
from ledger.identity import mutation_identity
from ledger.states import MutationStatus, RunStatus
from ledger.store import ScriptCall
from ledger.store.codec import unpack_record
from ledger.strict_json import check_arguments
from tests.scripts.checking import refused, twice
from tests.support.ledger import (
    FAILED,
    NOT_EXECUTED,
    POLICY,
    SHARD,
    Ledger,
    begun,
    key,
    plan,
    proposed,
    sid_of,
    why,
)

SID = sid_of("s1")


def begin(token: str, step: int, **options: Any) -> ScriptCall[Work]:
    policy = options.pop("policy", POLICY)
    return begin_next(SHARD, SID, token, step, policy, **options)


def owned(ledger: Ledger, calls: Any, **options: Any) -> str:
    """Admits a call that is settled, then `calls` in the same session, which its owner has not begun yet; the token."""
    ledger.admit([proposed(99)], did="first")
    work, token = ledger.begin_first()
    ledger.admit(calls, **options)
    ledger.settle(work, token)
    return token


@pytest.mark.proves("C-13")
def test_intent_and_consumed_approval_are_written_together(ledger: Ledger) -> None:
    token = owned(ledger, [proposed(1, level="approve")], did="d2")
    run = ledger.find_run("d2")
    ledger.approve_all(run)
    work = begun(ledger.run(begin(token, 2)))
    entry = ledger.entry(work)
    assert (entry.status, entry.revision, entry.order) == (MutationStatus.EXECUTION_STARTED, 1, 1)
    assert entry.not_after == work.deadline + POLICY.drain_ms + POLICY.lease_ms
    assert (work.attempt, work.step) == (f"{token}-2", 2)
    assert ledger.statuses(run) == ["running"]
    stored = unpack_record("approval", ledger.raw.hget(key(f"approval:{run.calls[0].approval_id}"), "a"))
    assert (stored["st"], stored["us"]) == ("approved", True)


@pytest.mark.proves("C-13")
def test_one_approval_pays_for_one_attempt(ledger: Ledger) -> None:
    run = ledger.admit([proposed(1, level="approve")]).run
    ledger.approve_all(run)
    work, token = ledger.begin_first()
    ledger.settle(work, token, NOT_EXECUTED)
    stored = ledger.raw.hget(key(f"run:{run.run_id}"), "0")
    ledger.reopen(run, 0)
    assert ledger.raw.hget(key(f"run:{run.run_id}"), "0") != stored
    assert why(ledger.run(begin(token, 2))) == "released"
    assert ledger.read(run).calls[0].refusal == "approval_not_fresh"
    assert ledger.status(work) is NOT_EXECUTED


@pytest.mark.proves("C-13")
@pytest.mark.parametrize("spoilt", [{"st": "pending"}, {"st": "denied"}, {"us": True}, None])
def test_only_a_fresh_approval_pays(ledger: Ledger, spoilt: dict[str, Any] | None) -> None:
    token = owned(ledger, [proposed(1, level="approve")], did="d2")
    run = ledger.find_run("d2")
    ledger.approve_all(run)
    approval_id = run.calls[0].approval_id
    if spoilt is None:
        ledger.raw.delete(key(f"approval:{approval_id}"))
    else:
        ledger.rewrite(f"approval:{approval_id}", "a", spoilt)
    assert why(ledger.run(begin(token, 2))) == "released"
    assert ledger.read(run).calls[0].refusal == "approval_not_fresh"
    assert len(ledger.outcomes()) == 1


@pytest.mark.proves("C-13", "C-63")
def test_an_approval_is_not_consumed_by_a_begin_that_is_refused(ledger: Ledger) -> None:
    token = owned(ledger, [proposed(1, level="approve")], did="d2")
    run = ledger.find_run("d2")
    ledger.approve_all(run)
    ledger.rewrite(f"run:{run.run_id}", "m", {"g": 999})
    before = ledger.raw.hget(key(f"approval:{run.calls[0].approval_id}"), "a")
    assert why(ledger.run(begin(token, 2))) == "released"
    assert ledger.raw.hget(key(f"approval:{run.calls[0].approval_id}"), "a") == before


@pytest.mark.proves("C-63")
def test_a_run_of_another_session_generation_is_refused(ledger: Ledger) -> None:
    token = owned(ledger, [proposed(1)], did="d2")
    run = ledger.find_run("d2")
    ledger.rewrite(f"run:{run.run_id}", "m", {"g": 999})
    assert why(ledger.run(begin(token, 2))) == "released"
    ledger.rewrite(f"run:{run.run_id}", "m", {"g": ledger.generation()})
    assert [(call.status, call.refusal) for call in ledger.read(run).calls] == [("refused", "logical_turn_unavailable")]


@pytest.mark.proves("C-63")
def test_a_run_admitted_under_a_turn_that_is_gone_makes_no_new_one(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    ledger.finish()
    turn = ledger.admit(plan(1)).run.logical_turn_id
    token = owned(ledger, [proposed(7)], did="d7", logical_turn_id=turn)
    ledger.raw.hdel(key(f"session:{SID}"), "t1")
    assert why(ledger.run(begin(token, 2))) == "released"
    assert ledger.read(ledger.find_run("d7")).calls[0].refusal == "logical_turn_unavailable"


@pytest.mark.proves("C-63")
def test_a_run_admitted_without_a_turn_makes_none_once_its_delivery_has_one(ledger: Ledger) -> None:
    token = owned(ledger, [proposed(7)], did="d7")
    run = ledger.find_run("d7")
    identity = bytes.fromhex(run.delivery)
    ledger.rewrite(f"session:{SID}", b"d" + identity, {"t": 1})
    assert why(ledger.run(begin(token, 2))) == "released"
    assert ledger.read(run).calls[0].refusal == "logical_turn_unavailable"


@pytest.mark.proves("C-70")
def test_a_finished_turn_is_not_finished_while_something_runs_in_it_again(ledger: Ledger) -> None:
    def finished() -> list[bool]:
        session = ledger.session()
        assert session is not None
        return [turn.finished for turn in session.turns]

    ledger.admit(plan(1))
    ledger.finish(NOT_EXECUTED)
    assert finished() == [True]
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    assert finished() == [False]
    ledger.settle(work, token, next_step=2)
    assert finished() == [True]


@pytest.mark.proves("C-62")
def test_the_first_mutation_makes_the_turn_and_the_second_joins_it(ledger: Ledger) -> None:
    run = ledger.admit([proposed(0, protected=False), *[proposed(n) for n in (1, 2)]]).run
    work, token = ledger.begin_first()
    assert ledger.read(run).logical_turn_id is work.logical_turn_id is None
    first = begun(ledger.settle(work, token, next_step=2).work)
    assert ledger.read(run).logical_turn_id == first.logical_turn_id is not None
    second = begun(ledger.settle(first, token, next_step=3).work)
    assert second.logical_turn_id == first.logical_turn_id
    assert [ledger.entry(one).order for one in (first, second)] == [1, 2]


@pytest.mark.proves("C-30")
def test_a_token_is_compared_whole(ledger: Ledger) -> None:
    token = owned(ledger, [proposed(1)], did="d2")
    number, _, nonce = token.partition("-")
    for wrong in (number, f"{number}-", f"{number}-{nonce[:-1]}", f"{number}-{nonce}x", f"0{token}", f"9{token}", ""):
        refused(ledger, begin(wrong, 2), "lease_lost")
    assert begun(ledger.run(begin(token, 2))).index == 0


@pytest.mark.proves("C-30", "C-32")
def test_a_session_that_was_reclaimed_begins_nothing_for_its_old_owner(ledger: Ledger) -> None:
    token = owned(ledger, [proposed(1)], did="d2")
    ledger.reclaim()
    refused(ledger, begin(token, 2), "lease_lost")
    ledger.begin_first()
    refused(ledger, begin(token, 2), "lease_lost")


@pytest.mark.proves("C-23")
def test_a_step_must_grow(ledger: Ledger) -> None:
    token = owned(ledger, plan(2), did="d2")
    begun(ledger.run(begin(token, 5)))
    refused(ledger, begin(token, 4), "stale_step")
    refused(ledger, begin(token, 1), "stale_step")


@pytest.mark.proves("C-22", "C-23")
@pytest.mark.parametrize("protected", [True, False])
def test_the_same_step_again_is_the_same_attempt(ledger: Ledger, protected: bool) -> None:
    token = owned(ledger, [proposed(1, protected=protected)], did="d2")
    first, second = twice(ledger, begin(token, 2))
    assert replace(begun(first), store_now=0) == replace(begun(second), store_now=0)


@pytest.mark.proves("C-22")
@pytest.mark.parametrize("answer", ["released", "yielded"])
def test_a_step_that_gave_the_session_up_is_answered_the_same_again(ledger: Ledger, answer: str) -> None:
    token = owned(ledger, plan(1), did="d2")
    if answer == "yielded":
        ledger.admit(plan(1), session="s2")
    else:
        ledger.cancel(ledger.find_run("d2"))
    first, second = twice(ledger, begin(token, 2, yield_if_others=True))
    assert (why(first), why(second)) == (answer, answer)
    refused(ledger, begin(token, 3), "lease_lost")
    refused(ledger, begin(token, 1), "lease_lost")


@pytest.mark.proves("C-31")
def test_nothing_begins_while_a_call_is_in_flight(ledger: Ledger) -> None:
    for protected in (True, False):
        session = f"s-{protected}"
        ledger.admit([proposed(n, protected=protected) for n in range(2)], session=session)
        work, token = ledger.begin_first()
        call = begin_next(SHARD, sid_of(session), token, 2, POLICY, yield_if_others=True)
        refused(ledger, call, "call_in_flight")
        ledger.settle(work, token)
        assert begun(ledger.run(call)).index == 1


@pytest.mark.proves("C-23", "C-91")
def test_a_begin_sent_again_hands_out_no_work_once_somebody_reconciled(ledger: Ledger) -> None:
    token = owned(ledger, [proposed(1)], did="d2")
    work = begun(ledger.run(begin(token, 2)))
    ledger.reconcile(work, completed=False, dispatcher_stopped=True)
    refused(ledger, begin(token, 2), "attempt_voided")


@pytest.mark.proves("C-23")
@pytest.mark.parametrize("end", ["void", "settle"])
def test_a_begin_sent_again_hands_out_no_work_once_the_attempt_is_over(ledger: Ledger, end: str) -> None:
    token = owned(ledger, [proposed(1)], did="d2")
    work = begun(ledger.run(begin(token, 2)))
    if end == "void":
        ledger.void(work, token, 3)
        refused(ledger, begin(token, 2), "stale_step")
    else:
        ledger.settle(work, token)
        refused(ledger, begin(token, 2), "attempt_voided")


@pytest.mark.proves("C-60")
def test_what_another_run_of_the_turn_recorded_meanwhile_is_refused_at_begin(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    ledger.finish()
    turn = ledger.admit(plan(1)).run.logical_turn_id
    one = ledger.admit([proposed(5)], did="d5", logical_turn_id=turn).run
    other = ledger.admit([proposed(5, level="approve")], did="d6", logical_turn_id=turn).run
    ledger.approve_all(other)
    ledger.finish(FAILED)
    assert ledger.read(one).calls[0].status == "failed"
    assert ledger.read(other).calls[0].refusal == "mutation_failed"
    assert len(ledger.outcomes()) == 2


@pytest.mark.proves("C-70")
def test_the_33rd_mutation_of_a_turn_is_refused_at_begin(ledger: Ledger) -> None:
    ledger.admit(plan(31))
    ledger.finish()
    turn = ledger.admit(plan(31)).run.logical_turn_id
    runs = [ledger.admit([proposed(n)], did=f"d{n}", logical_turn_id=turn).run for n in (41, 42)]
    ledger.finish()
    assert [ledger.read(run).calls[0].refusal for run in runs] == [None, "mutation_limit"]


@pytest.mark.proves("C-83")
def test_a_call_whose_arguments_are_gone_is_not_begun(ledger: Ledger) -> None:
    for protected in (True, False):
        session = f"s-{protected}"
        run = ledger.admit([proposed(1, protected=protected)], session=session).run
        ledger.raw.delete(key(f"args:{sid_of(session)}"))
        (claimed,) = ledger.claim()
        assert why(claimed.work) == "released"
        assert ledger.read(run).calls[0].refusal == "arguments_changed"


@pytest.mark.proves("C-01", "C-02")
def test_numbers_and_long_texts_reach_the_owner_exactly(ledger: Ledger) -> None:
    exact = {"a": 2**53 + 1, "b": 18446744073709551617, "c": -(2**63) - 1, "d": 1.0, "e": 1, "f": "x" * 250_000}
    call = replace(proposed(1, level="approve"), arguments=check_arguments(exact))
    run = ledger.admit([call]).run
    assert ledger.approval(run.calls[0].approval_id).arguments == exact
    ledger.approve_all(run)
    work, token = ledger.begin_first()
    assert (work.arguments, work.mutation_id) == (call.arguments, mutation_identity(call.tool, exact))
    assert [type(value) for value in work.parsed_arguments().values()] == [int, int, int, float, int, str]
    ledger.settle(work, token, result=call.arguments, next_step=2)
    assert ledger.read(run).calls[0].result == exact


@pytest.mark.proves("C-31")
def test_a_session_is_yielded_only_while_others_are_ready(ledger: Ledger) -> None:
    token = owned(ledger, plan(2), did="d2")
    work = begun(ledger.run(begin(token, 2, yield_if_others=True)))
    ledger.admit(plan(1), session="s2")
    ledger.outlast(2)
    settled = ledger.settle(work, token, next_step=3, yield_if_others=True)
    assert why(settled.work) == "yielded"
    assert {sid.decode() for sid in ledger.raw.zrange(key("ready"), 0, -1)} == {SID, sid_of("s2")}
    assert ledger.raw.zcard(key("owned")) == 0
    assert [claimed.sid for claimed in ledger.claim(most=1)] == [sid_of("s2")]


@pytest.mark.proves("C-31")
def test_a_run_that_waits_holds_back_no_other_and_is_not_queued(ledger: Ledger) -> None:
    waiting = ledger.admit([proposed(1), proposed(2, level="approve"), proposed(3)], did="d1").run
    other = ledger.admit([proposed(4)], did="d2").run
    work, token = ledger.begin_first()
    second = begun(ledger.settle(work, token, next_step=2).work)
    assert second.run_id == other.run_id
    assert ledger.read(waiting).status is RunStatus.WAITING_FOR_APPROVAL
    assert ledger.raw.zrange(key(f"queue:{SID}"), 0, -1) == [other.run_id.encode()]
    ledger.approve_all(waiting)
    third = begun(ledger.settle(second, token, next_step=3).work)
    assert (third.run_id, third.index) == (waiting.run_id, 1)


@pytest.mark.proves("C-41")
def test_a_begin_that_meets_an_expired_request_writes_its_expiry(ledger: Ledger) -> None:
    calls = [proposed(1), proposed(2, level="approve"), proposed(3)]
    run = ledger.admit(calls, on_error="continue", limits={"approval_ms": 1}).run
    work, token = ledger.begin_first()
    ledger.outlast_requests()
    third = begun(ledger.settle(work, token, next_step=2).work)
    assert (third.index, ledger.statuses(run)) == (2, ["completed", "expired", "running"])


def test_a_start_mark_that_nobody_holds_is_never_begun_again(ledger: Ledger) -> None:
    token = owned(ledger, plan(2), did="d2", on_error="continue")
    run = ledger.find_run("d2")
    ledger.rewrite(f"run:{run.run_id}", "0", {"st": "g"})
    work = begun(ledger.run(begin(token, 2)))
    assert (work.index, ledger.statuses(run)) == (1, ["outcome_unknown", "running"])
