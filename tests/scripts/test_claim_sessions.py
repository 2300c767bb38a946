"""claim_sessions: one owner a session, the same nonce gets the same answer, the first call begins with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.attempts import Begun, PolicyCheck
from ledger.ownership import ClaimReply, claim_sessions
from ledger.states import MutationStatus
from ledger.store import ScriptCall
from tests.scripts.checking import twice
from tests.support.ledger import POLICY, SHARD, UNKNOWN, Ledger, begun, key, plan, proposed, sid_of


def claim(nonce: str, most: int = 16, *, awake: bool = False) -> ScriptCall[ClaimReply]:
    return claim_sessions(SHARD, nonce, most, POLICY, awake=awake)


def same(reply: ClaimReply) -> list[tuple[str, str, object]]:
    """A reply without the store's time, which is told anew each time."""
    timeless = [replace(row.work, store_now=0) if isinstance(row.work, Begun) else row.work for row in reply.sessions]
    return [(row.sid, row.token, work) for row, work in zip(reply.sessions, timeless, strict=True)]


@pytest.mark.proves("C-30", "C-31")
def test_a_ready_session_goes_to_one_claimer_and_its_first_call_begins(ledger: Ledger) -> None:
    run = ledger.admit(plan(1)).run
    (claimed,) = ledger.claim("one")
    assert ledger.claim("two") == []
    work = begun(claimed.work)
    assert (work.run_id, work.index, work.step, work.parsed_arguments()) == (
        run.run_id,
        0,
        1,
        {"n": 0, "title": "marker-0"},
    )
    assert ledger.status(work) is MutationStatus.EXECUTION_STARTED
    assert ledger.raw.zrange(key("owned"), 0, -1) == [sid_of("s1").encode()]
    assert ledger.raw.zcard(key("ready")) == 0
    assert 0 < ledger.raw.pttl(key("claim:one")) <= POLICY.lease_ms
    assert [event.type for event in ledger.journal(run)] == ["run_started", "tool_execution_started"]


@pytest.mark.proves("C-30", "C-22")
def test_the_same_nonce_gets_the_same_sessions_and_work(ledger: Ledger) -> None:
    for n in range(3):
        ledger.admit([proposed(n, protected=n != 1)], session=f"s{n}")
    first, second = twice(ledger, claim("one"))
    assert len(first.sessions) == 3
    assert same(first) == same(second)


@pytest.mark.proves("C-22")
def test_a_repeat_tells_again_of_a_session_that_had_nothing_to_do(ledger: Ledger) -> None:
    ledger.admit(plan(1), deadline_ms=1)
    ledger.outlast(1)
    first, second = twice(ledger, claim("one"))
    assert same(first) == same(second)
    assert [row.work for row in first.sessions] == [row.work for row in second.sessions]


@pytest.mark.proves("C-22")
def test_a_repeat_leaves_out_sessions_whose_owner_went_on_but_tells_of_the_others(ledger: Ledger) -> None:
    ledger.admit(plan(2), session="s1")
    ledger.admit(plan(1), session="s2")
    ledger.admit(plan(1), session="s3")
    first = {row.sid: row for row in ledger.run(claim("one")).sessions}
    went_on = first[sid_of("s1")]
    ledger.settle(begun(went_on.work), went_on.token, next_step=2)
    settled = first[sid_of("s2")]
    ledger.settle(begun(settled.work), settled.token)
    _, again = twice(ledger, claim("one"))
    assert [row.sid for row in again.sessions] == [sid_of("s3")]


@pytest.mark.proves("C-30")
def test_every_claim_has_a_token_of_its_own(ledger: Ledger) -> None:
    tokens = set()
    for n in range(3):
        ledger.admit(plan(1), did=f"d{n}")
        (claimed,) = ledger.claim("nonce")
        tokens.add(claimed.token)
        ledger.settle(begun(claimed.work), claimed.token, next_step=2)
        ledger.raw.delete(key("claim:nonce"))
    assert len(tokens) == 3
    assert {token.partition("-")[2] for token in tokens} == {"nonce"}


@pytest.mark.proves("C-30")
def test_the_fence_is_never_given_back(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    before = int(ledger.raw.get(key("fence")))
    ledger.finish()
    assert int(ledger.raw.get(key("fence"))) > before
    assert ledger.raw.pttl(key("fence")) == -1


def test_it_claims_no_more_than_asked_for_and_says_what_is_left(ledger: Ledger) -> None:
    for n in range(3):
        ledger.admit(plan(1), session=f"s{n}")
    reply = ledger.run(claim("one", 2))
    assert (len(reply.sessions), reply.ready_left) == (2, 1)
    nothing = ledger.run(claim("two", 0))
    assert (len(nothing.sessions), nothing.ready_left) == (0, 1)


def test_it_promises_to_look_again_only_when_told(ledger: Ledger) -> None:
    ledger.run(claim("one"))
    assert ledger.raw.get(key("awake")) is None
    ledger.run(claim("two", awake=True))
    assert 0 < int(ledger.raw.get(key("awake"))) - ledger.now() <= 2000


@pytest.mark.proves("C-31")
def test_a_ready_session_whose_work_is_gone_is_not_owned(ledger: Ledger) -> None:
    run = ledger.admit(plan(1)).run
    ledger.cancel(run)
    assert ledger.raw.zcard(key("ready")) == 1
    assert ledger.claim() == []
    assert ledger.raw.zcard(key("ready")) == ledger.raw.zcard(key("owned")) == 0


@pytest.mark.proves("C-30", "C-31")
def test_sessions_without_work_take_no_place_of_others(ledger: Ledger) -> None:
    for n in range(3):
        ledger.cancel(ledger.admit(plan(1), session=f"gone{n}").run)
    ledger.outlast(2)
    ledger.admit(plan(1), session="s1")
    first, second = twice(ledger, claim("one", 1))
    assert [row.sid for row in first.sessions] == [sid_of("s1")]
    assert same(first) == same(second)


@pytest.mark.proves("C-05")
def test_a_run_admitted_under_another_policy_is_checked_first(ledger: Ledger) -> None:
    ledger.admit([proposed(0, level="approve", rule="small")], limits={"policy_digest": "policy-0"})
    first, second = twice(ledger, claim("one"))
    assert first.sessions[0].work == second.sessions[0].work
    check = first.sessions[0].work
    assert isinstance(check, PolicyCheck)
    assert (check.index, check.protected, check.level) == (0, True, "approve")


def corrupt(ledger: Ledger, name: str, field: str) -> bytes:
    """Puts a record there as a newer version would write it; answers what was there."""
    stored: bytes = ledger.raw.hget(key(name), field)
    ledger.raw.hset(key(name), field, b"\x02" + stored[1:])
    return stored


def test_a_session_that_cannot_be_read_costs_the_others_nothing(ledger: Ledger) -> None:
    runs = [ledger.admit(plan(1), session=f"s{n}").run for n in range(3)]
    corrupt(ledger, f"run:{runs[1].run_id}", "m")
    works = {row.sid: row.work for row in ledger.run(claim("one")).sessions}
    assert isinstance(works[sid_of("s0")], Begun)
    assert isinstance(works[sid_of("s2")], Begun)
    assert works[sid_of("s1")].why == "unreadable"  # type: ignore[union-attr]


def test_a_session_record_that_cannot_be_read_goes_to_the_end_of_the_line(ledger: Ledger) -> None:
    for n in range(2):
        ledger.admit(plan(1), session=f"s{n}")
    first = ledger.raw.zrange(key("ready"), 0, 0)[0].decode()
    stored = corrupt(ledger, f"session:{first}", "meta")
    (other,) = ledger.claim("one", 1)
    assert other.sid != first
    assert ledger.claim("two", 1) == []
    ledger.raw.hset(key(f"session:{first}"), "meta", stored)
    assert [claimed.sid for claimed in ledger.claim("three", 1)] == [first]


@pytest.mark.proves("C-31")
def test_many_session_records_that_cannot_be_read_hold_up_no_new_session(ledger: Ledger) -> None:
    for n in range(20):
        ledger.admit(plan(1), session=f"s{n}")
        corrupt(ledger, f"session:{sid_of(f's{n}')}", "meta")
    assert ledger.claim("one", 1) == []
    ledger.admit(plan(1), session="new")
    assert [claimed.sid for claimed in ledger.claim("two", 1)] == [sid_of("new")]
    assert ledger.raw.zcard(key("ready")) == 20


@pytest.mark.proves("C-33")
def test_the_next_owner_passes_over_what_an_earlier_one_left_started(ledger: Ledger) -> None:
    run = ledger.admit(plan(2), on_error="continue").run
    work, _ = ledger.begin_first()
    ledger.reclaim()
    second, _ = ledger.begin_first()
    assert (second.run_id, second.index) == (run.run_id, 1)
    assert ledger.status(work) is UNKNOWN
