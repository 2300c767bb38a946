"""sweep_shard: ended leases, expired requests, and ready sessions nobody is awake for."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ledger.attempts import PolicyCheck
from ledger.ownership import sweep_shard
from ledger.states import RunStatus
from tests.scripts.checking import unchanged
from tests.support.ledger import COMPLETED, POLICY, SHARD, UNKNOWN, Ledger, begun, key, plan, proposed, sid_of, why


@pytest.mark.proves("C-33", "C-111", "C-10")
def test_what_a_lost_owner_left_started_is_published_unknown_and_never_begun_again(ledger: Ledger) -> None:
    run = ledger.admit(plan(2)).run
    work, _ = ledger.begin_first()
    ledger.end_leases()
    ledger.raw.delete(key("awake"))
    swept = ledger.sweep()
    assert (swept.reclaimed, swept.claim) == (1, True)
    assert (ledger.status(work), ledger.entry(work).revision) == (UNKNOWN, 2)
    assert [json.loads(row["record"])["status"] for row in ledger.outcomes()] == ["outcome_unknown"]
    assert ledger.raw.zcard(key("unknowns:acme")) == 1
    assert [why(claimed.work) for claimed in ledger.claim()] == ["released"]
    assert (ledger.statuses(run), ledger.read(run).status) == (["outcome_unknown", "skipped"], RunStatus.FAILED)
    assert len(ledger.outcomes()) == 1


@pytest.mark.proves("C-33")
def test_with_continue_a_plan_goes_on_past_the_unknown(ledger: Ledger) -> None:
    run = ledger.admit(plan(2), on_error="continue").run
    ledger.begin_first()
    ledger.reclaim()
    ledger.finish()
    assert (ledger.statuses(run), ledger.read(run).status) == (["outcome_unknown", "completed"], RunStatus.FAILED)


@pytest.mark.proves("C-33")
def test_an_unprotected_call_runs_again_until_the_third_owner_it_takes_down(ledger: Ledger) -> None:
    run = ledger.admit([proposed(0, protected=False), proposed(1)]).run
    for _ in range(3):
        work, _ = ledger.begin_first()
        assert work.index == 0
        ledger.reclaim()
    ended = ledger.read(run)
    assert (ended.status, ended.end_code, ledger.statuses(run)) == (
        RunStatus.FAILED,
        "poison_call",
        ["outcome_unknown", "skipped"],
    )
    assert ledger.claim() == []
    assert ledger.where("marker-") == []


@pytest.mark.proves("C-33")
def test_a_call_that_came_through_starts_the_next_one_s_count_at_zero(ledger: Ledger) -> None:
    run = ledger.admit([proposed(n, protected=False) for n in range(2)]).run
    for _ in range(2):
        ledger.begin_first()
        ledger.reclaim()
    work, token = ledger.begin_first()
    ledger.settle(work, token, COMPLETED, next_step=2)
    ledger.reclaim()
    ledger.begin_first()
    ledger.reclaim()
    work, token = ledger.begin_first()
    ledger.settle(work, token, next_step=2)
    assert ledger.read(run).status is RunStatus.COMPLETED


@pytest.mark.proves("C-33")
def test_owners_lost_before_the_start_mark_do_not_count(ledger: Ledger) -> None:
    run = ledger.admit([proposed(0, protected=False)], limits={"policy_digest": "policy-0"}).run
    for _ in range(4):
        (claimed,) = ledger.claim()
        assert isinstance(claimed.work, PolicyCheck)
        ledger.reclaim()
    work, token = ledger.begin_first(policy=replace(POLICY, digest="policy-0"))
    ledger.settle(work, token, next_step=2)
    assert ledger.read(run).status is RunStatus.COMPLETED


@pytest.mark.proves("C-30", "C-31")
def test_a_session_leaves_owned_into_ready_or_into_nothing(ledger: Ledger) -> None:
    ledger.admit(plan(1), session="s1")
    ledger.admit(plan(2), session="s2", on_error="continue")
    rows = {row.sid: row for row in ledger.claim()}
    one = rows[sid_of("s1")]
    ledger.settle(begun(one.work), one.token)
    waiting = ledger.admit([proposed(5, level="approve")], session="s1", did="d5").run
    ledger.reclaim()
    ready = {sid.decode() for sid in ledger.raw.zrange(key("ready"), 0, -1)}
    assert (ready, ledger.raw.zcard(key("owned"))) == ({sid_of("s1"), sid_of("s2")}, 0)
    ledger.finish()
    assert ledger.read(waiting).status is RunStatus.WAITING_FOR_APPROVAL
    assert ledger.raw.zcard(key("ready")) == ledger.raw.zcard(key("owned")) == 0


@pytest.mark.proves("C-30")
def test_leases_more_than_two_ahead_are_corrected(ledger: Ledger) -> None:
    for n in range(2):
        ledger.admit(plan(1), session=f"s{n}")
    first, second = ledger.claim()
    ends = ledger.now() + 2 * POLICY.lease_ms - 5_000
    ledger.raw.zadd(key("owned"), {first.sid: ends, second.sid: ledger.now() + 10 * POLICY.lease_ms})
    ledger.sweep()
    assert ledger.raw.zscore(key("owned"), first.sid) == ends
    assert ledger.raw.zscore(key("owned"), second.sid) <= ledger.now() + POLICY.lease_ms


@pytest.mark.proves("C-30")
def test_a_lease_is_judged_by_the_length_in_its_owner_s_token(ledger: Ledger) -> None:
    """A worker with a short lease sweeps: another one's long leases stay, and those of a clock set back do not."""
    long_ms = 4 * POLICY.lease_ms
    for n in range(3):
        ledger.admit(plan(1), session=f"s{n}")
    long_lease = replace(POLICY, lease_ms=long_ms)
    (kept,) = ledger.claim(f"1fx{long_ms:x}x0123456789abcdef", most=1, policy=long_lease)
    (beyond,) = ledger.claim(f"1fx{long_ms:x}x0123456789abcdee", most=1, policy=long_lease)
    (short,) = ledger.claim(f"1fx{POLICY.lease_ms:x}x0123456789abcdef", most=1)
    ends = ledger.raw.zscore(key("owned"), kept.sid)
    ledger.raw.zadd(key("owned"), {beyond.sid: ends + 2 * long_ms, short.sid: ends})
    ledger.sweep()
    assert ledger.raw.zscore(key("owned"), kept.sid) == ends
    assert ends <= ledger.raw.zscore(key("owned"), beyond.sid) <= ledger.now() + long_ms
    assert ledger.raw.zscore(key("owned"), short.sid) <= ledger.now() + POLICY.lease_ms


@pytest.mark.proves("C-41")
def test_expired_requests_end_and_their_runs_go_on(ledger: Ledger) -> None:
    stops = ledger.admit(plan(2, level="approve"), did="d1", limits={"approval_ms": 1}).run
    goes_on = ledger.admit(
        [proposed(7, level="approve"), proposed(8)], did="d2", on_error="continue", limits={"approval_ms": 1}
    ).run
    ledger.outlast_requests()
    swept = ledger.sweep()
    assert (swept.expired, swept.claim) == (3, True)
    assert (ledger.statuses(stops), ledger.read(stops).status) == (["expired", "expired"], RunStatus.FAILED)
    assert (ledger.statuses(goes_on), ledger.read(goes_on).status) == (["expired", "queued"], RunStatus.QUEUED)
    assert [event.word for event in ledger.journal(stops) if event.type == "approval_decided"] == ["expired"] * 2
    assert ledger.outcomes() == []


def test_it_sweeps_at_most_once_an_interval(ledger: Ledger) -> None:
    ledger.sweep()
    ledger.admit(plan(1))
    ledger.begin_first()
    ledger.end_leases()
    answer = unchanged(ledger, sweep_shard(SHARD, POLICY.lease_ms))
    assert (answer.swept, answer.reclaimed) == (False, 0)


@pytest.mark.proves("C-31")
def test_it_looks_for_ready_sessions_only_when_nobody_promised_to(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    assert not ledger.sweep().claim
    ledger.raw.set(key("awake"), "1")
    assert ledger.sweep().claim
    assert not ledger.sweep().claim


def test_one_that_cannot_be_read_keeps_no_other_from_being_swept(ledger: Ledger) -> None:
    runs = {n: ledger.admit(plan(1), session=f"s{n}").run for n in range(2)}
    asked = {n: ledger.admit([proposed(5, level="approve")], session=f"a{n}").run for n in range(2)}
    owners = ledger.claim()
    for name in (f"run:{runs[0].run_id}", f"run:{asked[0].run_id}"):
        ledger.raw.hset(key(name), "m", b"\x02" + ledger.raw.hget(key(name), "m")[1:])
    ends = ledger.now() - 1
    for call in (asked[0].calls[0], asked[1].calls[0]):
        ledger.raw.zadd(key("approvals"), {call.approval_id: ends})
    ledger.rewrite(f"run:{asked[1].run_id}", "0", {"ex": ends})
    ledger.end_leases()
    swept = ledger.sweep()
    assert (swept.reclaimed, swept.expired, len(owners)) == (1, 1, 2)
    assert ledger.raw.zrange(key("owned"), 0, -1) == [sid_of("s0").encode()]
    assert ledger.raw.zscore(key("owned"), sid_of("s0")) > ledger.now()
    assert ledger.statuses(asked[1]) == ["expired"]
