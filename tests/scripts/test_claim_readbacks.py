"""claim_readbacks: which unknown outcomes may be looked up now, and by whom."""

from __future__ import annotations

import pytest

from ledger.erasure import erase_session, sweep_retention
from ledger.reconciliation import Target, attach_metadata
from tests.scripts.checking import unchanged
from tests.support.ledger import (
    COMPLETED,
    POLICY,
    SHARD,
    SHARDS,
    TENANT,
    TOOL,
    UNKNOWN,
    Ledger,
    key,
    plan,
    proposed,
    sid_of,
)
from tests.support.readbacks import HOLD_MS, TRIES, claim, index, make_due, member, unknown


@pytest.mark.proves("C-91")
def test_a_question_names_the_attempt_and_shows_what_was_sent(ledger: Ledger) -> None:
    work = unknown(ledger)
    target = Target(TENANT, "s1", "ops", "dana", work.mutation_id, logical_turn_id=work.logical_turn_id)
    ledger.run(attach_metadata(target, {"id": "T-1"}, SHARDS))
    (question,) = ledger.run(claim()).questions
    asked = question.request
    assert (asked.tool, asked.mutation_id, asked.attempt) == (TOOL, work.mutation_id, work.attempt)
    assert (asked.arguments, asked.metadata) == ({"title": "marker-0", "n": 0}, {"id": "T-1"})
    assert (asked.tenant, asked.session_id, asked.agent, asked.user) == (TENANT, "s1", "ops", "dana")
    assert (asked.logical_turn_id, asked.attempt_number) == (work.logical_turn_id, 1)
    assert ledger.entry(work).readback_tries == 1


@pytest.mark.proves("C-91")
def test_nothing_is_asked_before_the_attempt_s_not_after(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    assert unchanged(ledger, claim()).questions == ()
    ledger.settle(work, token, UNKNOWN, next_step=2)
    assert unchanged(ledger, claim()).questions == ()
    assert ledger.raw.zscore(index(), member(work)) == ledger.entry(work).not_after + 1


@pytest.mark.proves("C-91")
def test_one_at_a_time_until_the_hold_is_over(ledger: Ledger) -> None:
    work = unknown(ledger)
    (first,) = ledger.run(claim("n1")).questions
    assert unchanged(ledger, claim("n2")).questions == ()
    held = ledger.raw.zscore(index(), member(work)) - ledger.now()
    assert HOLD_MS - 5_000 < held <= HOLD_MS
    # Whoever took it is gone.
    make_due(ledger, work)
    (second,) = ledger.run(claim("n2")).questions
    assert (second.request.attempt_number, second.token != first.token) == (2, True)


@pytest.mark.proves("C-91")
def test_after_the_last_try_nobody_asks_any_more(ledger: Ledger) -> None:
    work = unknown(ledger)
    for _ in range(TRIES):
        assert len(ledger.run(claim()).questions) == 1
        make_due(ledger, work)
    assert ledger.run(claim()).questions == ()
    assert ledger.raw.zcard(index()) == 0
    assert ledger.entry(work).status is UNKNOWN


def test_only_registered_tools_and_the_asker_s_tenant(ledger: Ledger) -> None:
    unknown(ledger)
    assert unchanged(ledger, claim(tools=["other_tool"])).questions == ()
    assert unchanged(ledger, claim(tenant="globex")).questions == ()
    assert len(ledger.run(claim(tenant=TENANT)).questions) == 1


def test_those_of_other_tenants_hide_none(ledger: Ledger) -> None:
    for n in range(5):
        unknown(ledger, f"s{n}")
    first = ledger.run(claim(tenant="globex", most=2))
    assert (first.questions, first.skip) == ((), (2,))
    second = ledger.run(claim(tenant="globex", most=2, skip=[2]))
    third = ledger.run(claim(tenant="globex", most=2, skip=list(second.skip)))
    # The end was met, so it begins anew.
    assert (second.skip, third.skip) == ((4,), (0,))


@pytest.mark.proves("C-91")
@pytest.mark.parametrize("end", ["late report", "reconciled", "erased"])
def test_what_is_no_longer_unknown_is_on_no_list(ledger: Ledger, end: str) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    ledger.reclaim()
    assert ledger.raw.zcard(index()) == 1
    if end == "late report":
        ledger.settle(work, token, COMPLETED)
    elif end == "reconciled":
        ledger.reconcile(work, completed=True)
    else:
        ledger.run(erase_session(TENANT, "s1", 86_400_000, SHARDS))
    assert ledger.raw.zcard(index()) == ledger.raw.zcard(key("unknowns:acme")) == 0


@pytest.mark.proves("C-91", "C-82")
def test_an_erasure_takes_no_unknown_of_a_new_session_off_the_lists(ledger: Ledger) -> None:
    ledger.raw.zadd(index(), {member(unknown(ledger)): ledger.now() + 1_000_000})
    ledger.run(erase_session(TENANT, "s1", 86_400_000, SHARDS))
    ledger.admit(plan(1), did="other")
    work, token = ledger.begin_first()
    ledger.settle(work, token, UNKNOWN, next_step=2)
    for _ in range(3):
        ledger.raw.delete(key("swept:retention"))
        ledger.run(sweep_retention(SHARD, 86_400_000, 1000))
    assert ledger.raw.zcard(key("erase")) == 0
    assert ledger.raw.zrange(key("unknowns:acme"), 0, -1) == [member(work).encode()]
    # It is asked about when its own attempt is over, whatever was known of the erased one.
    assert ledger.raw.zscore(index(), member(work)) == ledger.entry(work).not_after + 1


def test_one_that_cannot_be_read_keeps_no_other_from_being_asked(ledger: Ledger) -> None:
    first, second = unknown(ledger, "s1"), unknown(ledger, "s2")
    session = key(f"session:{sid_of('s1')}")
    ledger.raw.hset(session, "meta", b"\x02" + ledger.raw.hget(session, "meta")[1:])
    (question,) = ledger.run(claim()).questions
    assert question.request.mutation_id == second.mutation_id
    assert ledger.raw.zscore(index(), member(first)) > ledger.now()


@pytest.mark.proves("C-91", "C-13")
def test_a_fresh_attempt_is_asked_about_from_the_start(ledger: Ledger) -> None:
    work = unknown(ledger)
    ledger.run(claim())
    ledger.reconcile(work, completed=False)
    ledger.admit([proposed(0)])
    second, token = ledger.begin_first(policy=POLICY)
    assert (ledger.entry(second).readback_tries, ledger.raw.zcard(index())) == (0, 0)
    ledger.settle(second, token, UNKNOWN, next_step=2)
    make_due(ledger, second)
    (question,) = ledger.run(claim()).questions
    assert (question.request.attempt, question.request.attempt_number) == (second.attempt, 1)
