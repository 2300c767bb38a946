"""Handler runs in scripts that other runs share: claimed, begun, parked, put back, reclaimed, ended from outside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.attempts import Parked, PolicyCheck, Work, begin_next, void_attempt
from ledger.erasure import erase_session
from ledger.handlers import HandlerOffer, HandlerStart
from ledger.ownership import claim_sessions, release_sessions, renew_leases
from ledger.states import RunStatus
from ledger.store import ScriptCall
from ledger.store.scripts import SCRIPTS
from tests.scripts.checking import refused, twice
from tests.support import handlers
from tests.support.handlers import NAME, OFFER, Owned
from tests.support.ledger import (
    COMPLETED,
    NOT_EXECUTED,
    POLICY,
    SEQ,
    SHARD,
    SHARDS,
    TENANT,
    UNKNOWN,
    Ledger,
    begun,
    key,
    plan,
    proposed,
    sid_of,
    why,
)

BLOCKING = frozenset({NAME})


def beginning(owned: Owned, step: int, offer: HandlerOffer | None = OFFER, **options: object) -> ScriptCall[Work]:
    """The owner asks for more."""
    return begin_next(SHARD, owned.start.sid, owned.token, step, POLICY, offer=offer, **options)  # type: ignore[arg-type]


def news(owned: Owned) -> int | None:
    """The number that a renewal carries now."""
    (renewal,) = owned.ledger.run(renew_leases(SHARD, [(owned.start.sid, owned.token)], 30_000))
    return renewal.news


@pytest.mark.proves("C-22", "C-30")
def test_a_claim_sent_again_starts_the_same_handlers(ledger: Ledger) -> None:
    runs = [handlers.admit(ledger, session=f"s{n}", did="d1") for n in range(3)]
    claim = claim_sessions(SHARD, "again", 16, POLICY, awake=False, offer=HandlerOffer(2, 2))
    answers = [[row.work for row in reply.sessions] for reply in twice(ledger, claim)]
    started = [[work.run_id for work in works if isinstance(work, HandlerStart)] for works in answers]
    assert started[0] == started[1]
    assert [[type(work) for work in works] for works in answers] == [[HandlerStart, HandlerStart, Parked]] * 2
    statuses = sorted(ledger.read(run).status.value for run in runs)
    assert statuses == ["queued", "running", "running"]


@pytest.mark.proves("C-22", "C-33")
def test_a_begin_sent_again_starts_the_same_handler_and_counts_it_once(ledger: Ledger) -> None:
    handlers.admit(ledger, did="d1")
    owned = handlers.start(ledger)
    second = handlers.admit(ledger, did="d2")
    first, again = twice(ledger, beginning(owned, 2))
    assert isinstance(first, HandlerStart)
    assert isinstance(again, HandlerStart)
    assert (first.run_id, again.run_id, again.earlier_starts) == (second.run_id, second.run_id, 0)
    assert isinstance(ledger.run(beginning(owned, 3)), Parked)


@pytest.mark.proves("C-23")
def test_a_start_that_was_put_back_is_queued_again_and_not_counted(ledger: Ledger) -> None:
    handlers.admit(ledger, did="d1")
    owned = handlers.start(ledger)
    second = handlers.admit(ledger, did="d2")
    ledger.run(beginning(owned, 2))
    first, again = twice(ledger, void_attempt(SHARD, owned.start.sid, owned.token, 3, f"{owned.token}-2"))
    assert (first.how, again.how) == ("nothing", "repeated")
    assert ledger.read(second).status is RunStatus.QUEUED
    refused(ledger, beginning(owned, 2), "stale_step")
    started = ledger.run(beginning(owned, 4))
    assert isinstance(started, HandlerStart)
    assert (started.run_id, started.earlier_starts) == (second.run_id, 0)


@pytest.mark.proves("C-31")
@pytest.mark.parametrize("offer", [None, HandlerOffer(0, 0), HandlerOffer(1, 0, BLOCKING)])
def test_without_a_place_a_handler_stays_queued_and_others_go_on(ledger: Ledger, offer: HandlerOffer | None) -> None:
    run = handlers.admit(ledger, did="d1")
    other = ledger.admit(plan(1), did="d2").run
    (claimed,) = ledger.run(claim_sessions(SHARD, "full", 16, POLICY, awake=False, offer=offer)).sessions
    work = begun(claimed.work)
    assert work.run_id == other.run_id
    settled = ledger.settle(work, claimed.token, next_step=2)
    assert isinstance(settled.work, Parked)
    assert ledger.read(run).status is RunStatus.QUEUED
    started = ledger.run(begin_next(SHARD, work.sid, claimed.token, 2, POLICY, offer=HandlerOffer(1, 1, BLOCKING)))
    assert isinstance(started, HandlerStart)
    assert started.run_id == run.run_id


@pytest.mark.proves("C-31")
def test_a_session_with_a_live_handler_is_neither_released_nor_yielded(ledger: Ledger) -> None:
    handlers.admit(ledger, did="d1")
    owned = handlers.start(ledger)
    ledger.admit(plan(2), did="d2")
    ledger.admit(plan(1), session="other")
    work = begun(ledger.run(beginning(owned, 2, yield_if_others=True)))
    second = begun(ledger.settle(work, owned.token, next_step=3, yield_if_others=True).work)
    assert isinstance(ledger.settle(second, owned.token, next_step=4, yield_if_others=True).work, Parked)
    assert ledger.raw.zscore(key("owned"), owned.start.sid) is not None
    ledger.run(owned.ending())
    assert why(ledger.run(beginning(owned, 4))) == "released"
    assert ledger.raw.zscore(key("owned"), owned.start.sid) is None


@pytest.mark.proves("C-34")
def test_a_warm_stop_begins_only_what_live_handlers_ask_for(ledger: Ledger) -> None:
    handlers.admit(ledger, did="d1")
    owned = handlers.start(ledger)
    ledger.admit(plan(1), did="d2")
    handlers.admit(ledger, did="d3")
    owned.propose(0, 7)
    work = begun(ledger.run(beginning(owned, 2, only_live=True)))
    assert work.run_id == owned.start.run_id
    ledger.settle(work, owned.token)
    assert isinstance(ledger.run(beginning(owned, 3, only_live=True)), Parked)


@pytest.mark.proves("C-31")
@pytest.mark.parametrize("what", ["approved", "denied", "cancelled", "admitted"])
def test_what_a_waiting_owner_must_hear_changes_the_number_in_its_renewals(ledger: Ledger, what: str) -> None:
    run = handlers.admit(ledger, did="d1")
    owned = handlers.start(ledger)
    asked = owned.propose(0, level="approve")
    parked = ledger.run(beginning(owned, 2))
    assert isinstance(parked, Parked)
    assert news(owned) == parked.news == owned.start.news
    if what == "admitted":
        ledger.admit(plan(1), did="d2")
    elif what == "cancelled":
        ledger.cancel(run)
    else:
        ledger.decide(asked.approval_id or "", "approve" if what == "approved" else "deny")
    changed = news(owned)
    assert changed is not None
    assert changed > parked.news


@pytest.mark.proves("C-50")
def test_a_handler_is_not_started_past_its_ceiling(ledger: Ledger) -> None:
    run = handlers.admit(ledger, limits={"ceiling_ms": 1})
    ledger.outlast(2)
    (claimed,) = ledger.run(claim_sessions(SHARD, "late", 16, POLICY, awake=False, offer=OFFER)).sessions
    assert why(claimed.work) == "released"
    assert (ledger.read(run).status, ledger.read(run).end_code) == (RunStatus.FAILED, "request_ceiling")


@pytest.mark.proves("C-55")
def test_a_queued_handler_is_cancelled_at_once_and_never_started(ledger: Ledger) -> None:
    run = handlers.admit(ledger)
    assert ledger.cancel(run).answer == "cancelled"
    assert ledger.claim() == []
    assert ledger.where("marker-input") == []


@pytest.mark.proves("C-33", "C-34")
def test_a_release_is_a_loss_like_any_other(ledger: Ledger) -> None:
    run = handlers.admit(ledger, did="d1")
    owned = handlers.start(ledger)
    asked = owned.propose(0, level="approve")
    rows = [(owned.start.sid, owned.token)]
    ledger.run(release_sessions(SHARD, rows))
    assert ledger.read(run).status is RunStatus.QUEUED
    assert ledger.approval(asked.approval_id).state == "pending"
    assert handlers.start(ledger).start.earlier_starts == 1


@pytest.mark.proves("C-33", "C-40")
def test_an_interrupted_run_cancels_what_it_still_asked(ledger: Ledger) -> None:
    run = handlers.admit(ledger, did="d1")
    owned = handlers.start(ledger)
    owned.propose(0)
    ledger.settle(begun(ledger.run(beginning(owned, 2))), owned.token)
    asked = owned.propose(1, 1, level="approve")
    ledger.reclaim()
    assert (ledger.read(run).status, ledger.read(run).end_code) == (RunStatus.FAILED, "interrupted")
    assert ledger.statuses(run) == ["completed", "cancelled"]
    assert ledger.approval(asked.approval_id).state == "cancelled"
    assert ledger.raw.zcard(key("approvals")) == 0
    assert ledger.where("marker") == []


@pytest.mark.proves("C-33")
def test_an_intent_that_was_put_back_does_not_stand_in_the_way(ledger: Ledger) -> None:
    run = handlers.admit(ledger)
    owned = handlers.start(ledger)
    owned.propose(0)
    ledger.settle(begun(ledger.run(beginning(owned, 2))), owned.token, NOT_EXECUTED)
    ledger.reclaim()
    again = handlers.start(ledger)
    assert again.start.run_id == run.run_id
    assert again.propose(0).status == "not_executed"


@pytest.mark.proves("C-33", "C-60")
def test_an_intent_of_an_earlier_run_of_the_delivery_counts_one_of_another_delivery_does_not(ledger: Ledger) -> None:
    handlers.admit(ledger, did="d1")
    owned = handlers.start(ledger)
    owned.propose(0)
    ledger.settle(begun(ledger.run(beginning(owned, 2))), owned.token)
    ledger.run(owned.ending(narration='"done"'))
    assert why(ledger.run(beginning(owned, 3))) == "released"
    turn = ledger.find_run("d1").logical_turn_id

    again = handlers.admit(ledger, did="d1")
    handlers.start(ledger)
    ledger.reclaim()
    assert ledger.read(again).end_code == "interrupted"

    other = handlers.admit(ledger, did="d2", logical_turn_id=turn)
    handlers.start(ledger)
    ledger.reclaim()
    assert ledger.read(other).status is RunStatus.QUEUED


@pytest.mark.proves("C-32", "C-33")
def test_a_report_that_comes_after_the_interruption_still_settles_the_mutation(ledger: Ledger) -> None:
    run = handlers.admit(ledger)
    owned = handlers.start(ledger)
    owned.propose(0)
    work = begun(ledger.run(beginning(owned, 2)))
    ledger.reclaim()
    assert ledger.status(work) is UNKNOWN
    assert ledger.settle(work, owned.token, COMPLETED).how == "late"
    assert ledger.status(work) is COMPLETED
    assert (ledger.read(run).end_code, ledger.statuses(run)) == ("interrupted", ["completed"])


@pytest.mark.proves("C-44")
def test_the_third_start_finds_what_the_second_asked_in_another_way(ledger: Ledger) -> None:
    run = handlers.admit(ledger)
    handlers.start(ledger).propose(0, level="approve")
    ledger.reclaim()
    second = handlers.start(ledger).propose(0, 5, level="approve")
    ledger.reclaim()
    third = handlers.start(ledger).propose(0, 5, level="approve")
    assert (third.index, third.approval_id) == (second.index, second.approval_id)
    assert ledger.statuses(run) == ["cancelled", "waiting_for_approval"]


@pytest.mark.proves("C-33")
def test_an_approved_call_is_not_begun_before_the_new_start_asks_for_it(ledger: Ledger) -> None:
    handlers.admit(ledger)
    asked = handlers.start(ledger).propose(0, level="approve")
    ledger.decide(asked.approval_id or "")
    ledger.reclaim()
    again = handlers.start(ledger)
    assert isinstance(ledger.run(beginning(again, 2)), Parked)
    assert again.propose(0, level="approve").status == "queued"
    assert begun(ledger.run(beginning(again, 2))).index == 0


@pytest.mark.proves("C-24", "C-31")
def test_no_call_is_added_while_one_is_in_flight(ledger: Ledger) -> None:
    handlers.admit(ledger)
    owned = handlers.start(ledger)
    owned.propose(0)
    work = begun(ledger.run(beginning(owned, 2)))
    refused(ledger, owned.proposal(1, 1), "call_in_flight")
    ledger.settle(work, owned.token)
    assert owned.propose(1, 1).status == "queued"


@pytest.mark.proves("C-05")
def test_a_call_proposed_under_another_policy_is_checked_again(ledger: Ledger) -> None:
    handlers.admit(ledger)
    owned = handlers.start(ledger)
    owned.propose(0)
    newer = replace(POLICY, digest="policy-2")
    work = ledger.run(begin_next(SHARD, owned.start.sid, owned.token, 2, newer, offer=OFFER))
    assert isinstance(work, PolicyCheck)
    assert begun(ledger.run(beginning(owned, 2))).index == 0


@pytest.mark.proves("C-05")
def test_what_counts_is_the_policy_of_the_worker_that_proposed_not_of_admission(ledger: Ledger) -> None:
    handlers.admit(ledger, limits={"policy_digest": "the front door's"})
    owned = handlers.start(ledger)
    owned.propose(0)
    assert begun(ledger.run(beginning(owned, 2))).index == 0


@pytest.mark.proves("C-52")
def test_a_handler_s_allowance_runs_from_the_approval(ledger: Ledger) -> None:
    policy = replace(POLICY, execution_ms=10_000, budget_ceiling_ms=800_000)
    handlers.admit(ledger)
    owned = handlers.start(ledger)
    asked = owned.propose(0, level="approve", eligible=True)
    before = ledger.now()
    ledger.decide(asked.approval_id or "")
    after = ledger.now()
    ledger.outlast(50)
    work = begun(ledger.run(begin_next(SHARD, owned.start.sid, owned.token, 2, policy, offer=OFFER)))
    assert before + 10_000 <= work.deadline <= after + 10_000
    assert work.store_now >= after + 50


@pytest.mark.proves("C-80")
def test_the_first_intent_of_a_new_delivery_moves_the_inactivity_clock_a_repeat_does_not(ledger: Ledger) -> None:
    def last_message() -> int:
        found = ledger.session()
        assert found is not None
        return found.last_message_at

    handlers.admit(ledger, did="d1")
    owned = handlers.start(ledger)
    admitted = last_message()
    ledger.outlast(5)
    owned.propose(0)
    ledger.settle(begun(ledger.run(beginning(owned, 2))), owned.token)
    first = last_message()
    assert first > admitted
    ledger.outlast(5)
    owned.propose(1, 1)
    ledger.settle(begun(ledger.run(beginning(owned, 3))), owned.token)
    ledger.run(owned.ending(narration='"done"'))
    assert why(ledger.run(beginning(owned, 4))) == "released"
    handlers.admit(ledger, did="d1")
    again = handlers.start(ledger)
    again.propose(0, 9)
    ledger.settle(begun(ledger.run(beginning(again, 2))), again.token)
    assert last_message() == first


@pytest.mark.proves("C-82", "C-83")
def test_erasure_ends_a_live_handler_and_nothing_of_it_is_left(ledger: Ledger) -> None:
    handlers.admit(ledger)
    owned = handlers.start(ledger)
    owned.propose(0, level="approve")
    ledger.run(erase_session(TENANT, "s1", 86_400_000, SHARDS))
    refused(ledger, owned.proposal(1, 1), "lease_lost")
    refused(ledger, owned.watching(0), "lease_lost")
    assert ledger.run(owned.ending(narration='"late"')).how == "over"
    assert ledger.raw.exists(key(f"session:{sid_of('s1')}")) == 0


@pytest.mark.proves("C-27")
def test_accepting_a_store_ends_live_handlers(ledger: Ledger) -> None:
    working = handlers.admit(ledger, session="s1")
    handlers.start(ledger)
    waiting = handlers.admit(ledger, session="s2")
    handlers.start(ledger).propose(0, level="approve")
    ledger.raw.hset(SEQ, "refused", "elsewhere")
    more = 1
    while more:
        _, more, _ = ledger.raw.eval(SCRIPTS["accept_shard"].source, 1, SEQ, "new", 100)
    for run in (working, waiting):
        stored = ledger.read(run)
        assert (stored.status, stored.end_code) == (RunStatus.CANCELLED, "store_accepted")
    assert ledger.raw.zcard(key("owned")) == ledger.raw.zcard(key("approvals")) == 0


@pytest.mark.proves("C-33")
def test_an_unprotected_call_in_flight_may_run_again_until_the_third_loss(ledger: Ledger) -> None:
    run = handlers.admit(ledger)
    for lost in range(3):
        owned = handlers.start(ledger)
        assert owned.start.earlier_starts == lost
        assert owned.propose(0, protected=False).status == "queued"
        begun(ledger.run(beginning(owned, 2)))
        ledger.reclaim()
    assert (ledger.read(run).status, ledger.read(run).end_code) == (RunStatus.FAILED, "poison_call")


@pytest.mark.proves("C-61", "C-60")
def test_a_live_handler_run_is_attached_to(ledger: Ledger) -> None:
    run = handlers.admit(ledger, did="d1")
    handlers.start(ledger)
    assert handlers.admit(ledger, did="d1").run_id == run.run_id
    ledger.admit([proposed(1)], did="d2")
    assert len(ledger.raw.zrange(key(f"queue:{sid_of('s1')}"), 0, -1)) == 1


@pytest.mark.proves("C-40", "C-70")
def test_limits_are_checked_before_anybody_is_asked(ledger: Ledger) -> None:
    handlers.admit(ledger, did="d1")
    owned = handlers.start(ledger)
    for n in range(32):
        owned.propose(n, n)
        ledger.settle(begun(ledger.run(beginning(owned, n + 2))), owned.token)
    told = owned.propose(32, 32, level="approve")
    assert (told.status, told.refusal, told.approval_id) == ("refused", "mutation_limit", None)
    handlers.admit(ledger, session="s2")
    other = handlers.start(ledger)
    ledger.rewrite(f"session:{other.start.sid}", "meta", {"ts": list(range(1, 51))})
    told = other.propose(0, level="approve")
    assert (told.status, told.refusal, told.approval_id) == ("refused", "turn_limit", None)
    assert ledger.raw.zcard(key("approvals")) == 0


@pytest.mark.proves("C-31", "C-51")
def test_a_call_that_ends_instead_of_being_begun_is_news(ledger: Ledger) -> None:
    run = handlers.admit(ledger, limits={"session_ms": 1})
    owned = handlers.start(ledger)
    owned.propose(0)
    ledger.outlast(2)
    before = news(owned)
    assert before is not None
    assert isinstance(ledger.run(beginning(owned, 2)), Parked)
    assert ledger.statuses(run) == ["not_executed"]
    after = news(owned)
    assert after is not None
    assert after > before
    assert handlers.report(owned.watch(0)).status == "not_executed"


@pytest.mark.proves("C-55")
def test_a_run_cancelled_in_flight_ends_when_its_call_is_settled(ledger: Ledger) -> None:
    run = handlers.admit(ledger)
    owned = handlers.start(ledger)
    owned.propose(0)
    work = begun(ledger.run(beginning(owned, 2)))
    assert ledger.cancel(run).answer == "cancelling"
    settled = ledger.settle(work, owned.token, next_step=3)
    assert why(settled.work) == "released"
    assert (ledger.read(run).status, ledger.statuses(run)) == (RunStatus.CANCELLED, ["completed"])
    assert ledger.run(owned.ending(narration='"late"')).how == "over"


@pytest.mark.proves("C-71")
def test_the_results_that_a_handler_run_keeps_are_bounded_together(ledger: Ledger) -> None:
    run = handlers.admit(ledger)
    owned = handlers.start(ledger)
    sizes = (10, 32 * 1024 * 1024, 10)
    for n, size in enumerate(sizes):
        owned.propose(n, n)
        work = begun(ledger.run(beginning(owned, n + 2)))
        result = '"' + "x" * (size - 2) + '"'
        ledger.settle(work, owned.token, result=result)
    assert [found.result is not None for found in ledger.read(run).calls] == [True, False, False]
