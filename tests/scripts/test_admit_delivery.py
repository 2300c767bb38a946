"""admit_delivery: session, delivery, run, calls, approval requests and queue place in one step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger.admission import Admitted, admit_delivery
from ledger.erasure import erase_session
from ledger.states import RunStatus
from ledger.store import ScriptCall
from tests.scripts.checking import refused, twice
from tests.support.ledger import (
    FAILED,
    LIMITS,
    NOT_EXECUTED,
    SHARDS,
    TENANT,
    UNKNOWN,
    Ledger,
    delivery,
    key,
    plan,
    proposed,
    sid_of,
)
from tests.support.wait import wait_until


def admission(calls: Any = None, *, limits: dict[str, Any] | None = None, **options: Any) -> ScriptCall[Admitted]:
    return admit_delivery(delivery(calls, **options), replace(LIMITS, **(limits or {})), SHARDS)


@pytest.mark.proves("C-40")
def test_a_plan_is_admitted_with_all_its_requests_at_once(ledger: Ledger) -> None:
    admitted = ledger.admit([*plan(2, level="approve"), proposed(9, level=None)])
    assert (admitted.how, admitted.wake) == ("new", False)
    assert admitted.run.status is RunStatus.WAITING_FOR_APPROVAL
    assert ledger.statuses(admitted.run) == ["waiting_for_approval", "waiting_for_approval", "queued"]
    assert [event.type for event in ledger.journal(admitted.run)] == ["run_started", *["approval_requested"] * 2]
    shown = ledger.approval(admitted.run.calls[1].approval_id)
    assert (shown.tool, shown.arguments) == ("mcp__boards__create", {"title": "marker-1", "n": 1})
    assert (shown.level, shown.requested_by, shown.user) == ("approve", "agent", "dana")
    assert shown.expires_at - shown.requested_at == LIMITS.approval_ms


@pytest.mark.proves("C-40")
def test_a_request_expires_no_later_than_its_run_s_ceiling(ledger: Ledger) -> None:
    admitted = ledger.admit(plan(1, level="approve"), deadline_ms=60_000)
    shown = ledger.approval(admitted.run.calls[0].approval_id)
    assert shown.expires_at - shown.requested_at == 60_000


@pytest.mark.proves("C-31")
def test_only_a_run_that_can_begin_is_queued_and_made_ready(ledger: Ledger) -> None:
    waiting = ledger.admit(plan(1, level="approve"), did="d1")
    assert ledger.raw.zcard(key("ready")) == 0
    queued = ledger.admit(plan(1), did="d2")
    assert queued.wake
    assert ledger.raw.zrange(key(f"queue:{sid_of('s1')}"), 0, -1) == [queued.run.run_id.encode()]
    assert waiting.run.status is RunStatus.WAITING_FOR_APPROVAL


@pytest.mark.proves("C-22")
@pytest.mark.parametrize("level", [None, "approve"])
@pytest.mark.parametrize("did", ["d1", None])
def test_sent_again_it_admits_nothing_more(ledger: Ledger, level: str | None, did: str | None) -> None:
    first, second = twice(ledger, admission(plan(2, level=level), did=did))
    assert (second.how, second.run) == ("new", first.run)


@pytest.mark.proves("C-22")
@pytest.mark.parametrize("did", ["d1", None])
def test_sent_again_after_its_run_ended_it_still_makes_no_second_run(ledger: Ledger, did: str | None) -> None:
    call = admission([proposed(0, protected=False)], did=did)
    first = ledger.run(call)
    ledger.finish()
    _, again = twice(ledger, call)
    assert (again.how, again.run.run_id, again.run.status) == ("new", first.run.run_id, RunStatus.COMPLETED)
    assert ledger.claim() == []


@pytest.mark.proves("C-22")
def test_a_late_copy_of_an_earlier_request_is_answered_by_its_own_run(ledger: Ledger) -> None:
    call = admission([proposed(0, protected=False)])
    first = ledger.run(call)
    ledger.finish()
    redelivered = ledger.run(admission([proposed(0, protected=False)]))
    assert redelivered.how == "redelivered"
    ledger.finish()
    _, again = twice(ledger, call)
    assert again.run.run_id == first.run.run_id
    assert ledger.claim() == []


@pytest.mark.proves("C-60")
def test_the_same_delivery_attaches_to_its_live_run(ledger: Ledger) -> None:
    first = ledger.admit(plan(1, level="approve"))
    _, second = twice(ledger, admission(plan(1, level="approve")))
    assert (second.how, second.run.run_id) == ("attached", first.run.run_id)


@pytest.mark.proves("C-60")
def test_after_its_end_the_same_delivery_runs_anew_under_its_turn_and_repeats_nothing(ledger: Ledger) -> None:
    first = ledger.admit(plan(4), on_error="continue")
    (claimed,) = ledger.claim()
    work: Any = claimed.work
    for step, status in enumerate((FAILED, UNKNOWN, NOT_EXECUTED), start=2):
        work = ledger.settle(work, claimed.token, status, next_step=step).work
    ledger.settle(work, claimed.token, next_step=9)
    again = ledger.admit(plan(4, level="approve"), on_error="continue")
    assert again.how == "redelivered"
    assert again.run.run_id != first.run.run_id
    assert again.run.logical_turn_id == ledger.read(first.run).logical_turn_id
    refusals = [(call.status.value, call.refusal, bool(call.approval_id)) for call in again.run.calls]
    assert refusals == [
        ("refused", "mutation_failed", False),
        ("refused", "mutation_outcome_unknown", False),
        ("waiting_for_approval", None, True),
        ("refused", "mutation_completed", False),
    ]


@pytest.mark.proves("C-60")
def test_nobody_is_asked_about_what_a_recorded_error_would_skip(ledger: Ledger) -> None:
    ledger.admit(plan(2))
    work, token = ledger.begin_first()
    ledger.settle(work, token, FAILED, next_step=2)
    again = ledger.admit(plan(2, level="approve"))
    assert again.run.status is RunStatus.FAILED
    assert ledger.statuses(again.run) == ["refused", "skipped"]
    assert ledger.raw.zcard(key("approvals")) == ledger.raw.hlen(key("asked")) == 0


@pytest.mark.proves("C-60")
@pytest.mark.parametrize("live", [True, False])
def test_other_content_under_the_same_delivery_is_refused(ledger: Ledger, live: bool) -> None:
    ledger.admit(plan(1))
    if not live:
        ledger.finish()
    refused(ledger, admission(plan(2)), "delivery_mismatch")
    refused(ledger, admission(plan(1), on_error="continue"), "delivery_mismatch")


@pytest.mark.proves("C-60")
def test_another_session_agent_or_user_makes_another_delivery(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    others: list[dict[str, str]] = [{"session": "s2"}, {"agent": "sre"}, {"user": "eve"}, {"tenant": "other"}]
    for other in others:
        session = other.pop("session", "s1")
        assert ledger.admit(plan(2), session=session, **other).how == "new"


@pytest.mark.proves("C-61")
def test_identical_requests_without_a_delivery_id_coalesce_while_one_lives(ledger: Ledger) -> None:
    first = ledger.admit(plan(1), did=None)
    attached = ledger.admit(plan(1), did=None)
    assert (attached.how, attached.run.run_id) == ("attached", first.run.run_id)
    assert ledger.admit(plan(2), did=None).how == "new"
    assert ledger.admit(plan(1), did=None, user="eve").how == "new"
    ledger.finish()
    assert ledger.admit(plan(1), did=None).how == "new"


@pytest.mark.proves("C-61", "C-22")
def test_an_attacher_sent_again_after_the_run_s_end_starts_nothing(ledger: Ledger) -> None:
    first = ledger.admit(plan(1), did=None)
    attach = admission(plan(1), did=None)
    before = ledger.run(attach)
    ledger.finish()
    _, again = twice(ledger, attach)
    assert (before.how, again.how) == ("attached", "attached")
    assert again.run.run_id == before.run.run_id == first.run.run_id
    assert ledger.claim() == []


@pytest.mark.proves("C-41")
@pytest.mark.parametrize("did", ["d1", None])
def test_an_attacher_meets_an_expired_request_and_writes_its_expiry(ledger: Ledger, did: str | None) -> None:
    first = ledger.admit(plan(1, level="approve"), did=did, limits={"approval_ms": 1})
    ledger.outlast_requests()
    attached = ledger.admit(plan(1, level="approve"), did=did)
    assert (attached.how, attached.run.run_id, attached.run.status) == ("attached", first.run.run_id, RunStatus.FAILED)
    assert attached.run.calls[0].status == "expired"


@pytest.mark.proves("C-62")
def test_an_admission_makes_no_turn(ledger: Ledger) -> None:
    assert ledger.admit(plan(1)).run.logical_turn_id is None
    session = ledger.session()
    assert session is not None
    assert session.turns == ()


@pytest.mark.proves("C-63")
def test_a_continuation_runs_under_the_named_turn(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    ledger.finish()
    turn = ledger.admit(plan(1)).run.logical_turn_id
    continued = ledger.admit(plan(2), did="d2", logical_turn_id=turn)
    assert (continued.how, continued.run.logical_turn_id) == ("new", turn)
    assert [call.refusal for call in continued.run.calls] == ["mutation_completed", None]


@pytest.mark.proves("C-63")
def test_unknown_foreign_and_disguised_turns_are_refused(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    ledger.admit(plan(1), session="s2")
    ledger.finish()
    turn = ledger.admit(plan(1)).run.logical_turn_id
    other = ledger.admit(plan(1), session="s2").run.logical_turn_id
    assert turn is not None
    assert other is not None
    disguised = [turn[:26] + "00000002", other, "x" * 34, turn[:-1], "01" + turn[2:], turn[:26] + "0x000001", "t1"]
    for name in [*disguised, turn[:26] + " 0000001", turn[:26] + "+0000001"]:
        refused(ledger, admission(plan(1), did="d9", logical_turn_id=name), "logical_turn_unavailable")
    refused(ledger, admission(plan(1), did="d9", logical_turn_id=turn, user="eve"), "logical_turn_unavailable")
    refused(ledger, admission(plan(1), did="d9", logical_turn_id=turn, agent="sre"), "logical_turn_unavailable")


@pytest.mark.proves("C-70")
def test_the_51st_delivery_of_a_turn_is_refused_and_known_ones_still_work(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    ledger.finish()
    turn = ledger.admit(plan(1)).run.logical_turn_id
    for n in range(2, 51):
        assert ledger.admit(plan(1), did=f"d{n}", logical_turn_id=turn).how == "new"
    refused(ledger, admission(plan(1), did="d51", logical_turn_id=turn), "delivery_limit")
    assert ledger.admit(plan(1), did="d50", logical_turn_id=turn).how == "redelivered"
    assert ledger.admit(plan(1)).how == "redelivered"


@pytest.mark.proves("C-70")
def test_the_33rd_mutation_of_a_turn_is_refused_before_anybody_is_asked(ledger: Ledger) -> None:
    ledger.admit(plan(31))
    ledger.finish()
    turn = ledger.admit(plan(31)).run.logical_turn_id
    more = [proposed(n, level="approve") for n in (40, 41)]
    continued = ledger.admit(more, did="d2", logical_turn_id=turn)
    assert [(call.refusal, bool(call.approval_id)) for call in continued.run.calls] == [
        (None, True),
        ("mutation_limit", False),
    ]


@pytest.mark.proves("C-71")
def test_live_runs_and_pending_requests_of_a_session_are_bounded(ledger: Ledger) -> None:
    ledger.admit(plan(2, level="approve"), limits={"max_live_runs": 1})
    refused(ledger, admission(plan(1), did="d2", limits={"max_live_runs": 1}), "queue_full")
    asking = admission([proposed(5, level="approve")], did="d2", limits={"max_pending_approvals": 2})
    refused(ledger, asking, "approvals_full")
    assert ledger.admit(plan(1), did="d2", limits={"max_pending_approvals": 2}).how == "new"
    other = admission([proposed(5, level="approve")], session="s2", limits={"max_pending_approvals": 1})
    assert ledger.run(other).how == "new"


@pytest.mark.proves("C-71")
def test_decided_expired_and_cancelled_requests_are_not_counted_any_more(ledger: Ledger) -> None:
    for did, n in (("d1", 1), ("d2", 2), ("d3", 3)):
        limits = {"max_pending_approvals": 1, "approval_ms": 1 if did == "d3" else 60_000}
        run = ledger.admit([proposed(n, level="approve")], did=did, limits=limits).run
        match did:
            case "d1":
                ledger.decide(run.calls[0].approval_id or "")
            case "d2":
                ledger.cancel(run)
            case _:
                ledger.outlast_requests()
                ledger.sweep()
        assert ledger.raw.hlen(key("asked")) == 0


@pytest.mark.proves("C-13", "C-40")
def test_a_repeated_call_of_a_plan_is_asked_about_once_and_done_once(ledger: Ledger) -> None:
    run = ledger.admit([proposed(1, level="approve"), proposed(1, level="approve")]).run
    assert [bool(call.approval_id) for call in run.calls] == [True, False]
    ledger.approve_all(run)
    ledger.finish()
    assert ledger.statuses(run) == ["completed", "refused"]
    assert ledger.read(run).status is RunStatus.COMPLETED
    assert len(ledger.outcomes()) == 1


@pytest.mark.proves("C-13")
def test_a_denied_call_s_repeat_in_the_same_plan_is_not_done(ledger: Ledger) -> None:
    run = ledger.admit([proposed(1, level="approve"), proposed(1, level="approve")], on_error="continue").run
    ledger.decide(run.calls[0].approval_id or "", "deny")
    ledger.finish()
    assert ledger.statuses(run) == ["denied", "refused"]
    assert ledger.read(run).calls[1].refusal == "approval_not_fresh"


@pytest.mark.proves("C-83")
def test_arguments_are_kept_per_call_and_nowhere_else(ledger: Ledger) -> None:
    ledger.admit([proposed(1, level="approve", text="geheim"), proposed(2, text="geheim")])
    assert ledger.where("geheim") == [key(f"args:{sid_of('s1')}")]


@pytest.mark.proves("C-84")
def test_a_retired_delivery_is_refused(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    ledger.finish()
    ledger.run(erase_session(TENANT, "s1", 60_000, SHARDS))
    refused(ledger, admission(plan(1)), "delivery_retired")
    assert ledger.admit(plan(1), did="d2").how == "new"


@pytest.mark.proves("C-81", "C-84")
def test_a_delivery_to_an_expired_session_is_retired_though_no_sweep_saw_it(ledger: Ledger) -> None:
    ledger.admit(plan(1), limits={"inactivity_ms": 1})
    ledger.finish()
    wait_until(lambda: ledger.session() is None, 5, "the session to expire")
    refused(ledger, admission(plan(1)), "delivery_retired")


@pytest.mark.proves("C-81")
def test_a_new_delivery_to_an_expired_session_starts_a_fresh_one(ledger: Ledger) -> None:
    ledger.admit(plan(1), limits={"inactivity_ms": 1})
    ledger.finish()
    wait_until(lambda: ledger.session() is None, 5, "the session to expire")
    refused(ledger, admission(plan(1), did="d2", logical_turn_id="00" + "0" * 32), "logical_turn_unavailable")
    fresh = ledger.admit(plan(1), did="d2")
    assert (fresh.how, fresh.run.logical_turn_id) == ("new", None)
    session = ledger.session()
    assert session is not None
    assert (session.turns, session.live_runs) == ((), 1)
    refused(ledger, admission(plan(1)), "delivery_retired")


def last_message(ledger: Ledger) -> int:
    session = ledger.session()
    assert session is not None
    assert ledger.raw.zscore(key("expiry"), sid_of("s1")) == session.last_message_at + LIMITS.inactivity_ms
    return session.last_message_at


@pytest.mark.proves("C-80")
def test_a_new_mutation_delivery_moves_the_inactivity_clock_and_a_repeat_does_not(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    ledger.finish()
    moments = [last_message(ledger)]
    ledger.outlast(2)
    turn = ledger.admit(plan(1)).run.logical_turn_id
    moments.append(last_message(ledger))
    ledger.admit(plan(1), did="d2", logical_turn_id=turn)
    moments.append(last_message(ledger))
    ledger.outlast(2)
    ledger.finish()
    moments.append(last_message(ledger))
    assert moments[0] == moments[1] < moments[2] == moments[3]


@pytest.mark.proves("C-80")
def test_a_run_that_changed_nothing_moves_the_inactivity_clock_when_it_completes(ledger: Ledger) -> None:
    ledger.admit([proposed(0, protected=False)])
    ledger.outlast(2)
    ledger.admit([proposed(1, protected=False)], did="d2")
    admitted = last_message(ledger)
    ledger.outlast(2)
    before = ledger.now()
    ledger.finish()
    assert admitted < before <= last_message(ledger)


@pytest.mark.proves("C-50")
@pytest.mark.parametrize(("deadline", "ceiling"), [(None, 900_000), (5_000, 5_000), (10**9, 900_000), (1, 1)])
def test_the_ceiling_is_the_smaller_of_the_host_s_and_ours(ledger: Ledger, deadline: int | None, ceiling: int) -> None:
    run = ledger.admit(plan(1, level="approve"), deadline_ms=deadline, limits={"approval_ms": 10**12}).run
    approval = ledger.approval(run.calls[0].approval_id)
    assert approval.expires_at - approval.requested_at == ceiling


def test_a_plan_of_32_large_calls_is_admitted_in_one_step(ledger: Ledger) -> None:
    large = [proposed(n, level="approve", text="x" * 200_000) for n in range(32)]
    run = ledger.admit(large).run
    assert len(run.calls) == 32
    last = ledger.approval(run.calls[31].approval_id).arguments
    assert last is not None
    assert len(last["title"]) > 200_000
