"""begin_next: until when a call may run, and whether it may begin at all any more (C-50 to C-52)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger.attempts import Work, begin_next
from ledger.states import RunStatus
from ledger.store import ScriptCall
from tests.support.ledger import (
    POLICY,
    SHARD,
    Ledger,
    begun,
    proposed,
    sid_of,
    why,
)
from tests.support.wait import wait_until

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


@pytest.mark.proves("C-50", "C-13")
def test_a_run_past_its_ceiling_begins_nothing(ledger: Ledger) -> None:
    token = owned(ledger, [proposed(1), proposed(2)], did="d2", deadline_ms=1)
    ledger.outlast(1)
    assert why(ledger.run(begin(token, 2))) == "released"
    run = ledger.find_run("d2")
    assert (run.status, ledger.statuses(run)) == (RunStatus.FAILED, ["not_executed", "skipped"])
    assert ledger.where("marker-1") == []


@pytest.mark.proves("C-51")
@pytest.mark.parametrize(
    ("limits", "deadline", "left"),
    [({}, None, 60_000), ({"session_ms": 40_000}, None, 40_000), ({}, 30_000, 30_000)],
)
def test_a_call_s_deadline_is_the_earliest_of_three(
    ledger: Ledger, limits: dict[str, int], deadline: int | None, left: int
) -> None:
    run = ledger.admit([proposed(1)], limits=limits, deadline_ms=deadline).run
    admitted_at = ledger.journal(run)[0].at
    work, _ = ledger.begin_first()
    waited = work.store_now - admitted_at if left != 60_000 else 0
    assert work.deadline == work.store_now + left - waited


@pytest.mark.proves("C-51")
def test_the_session_clock_stands_still_while_a_person_is_asked(ledger: Ledger) -> None:
    run = ledger.admit([proposed(1, level="approve")], limits={"session_ms": 500}).run
    asked_at = ledger.now()
    wait_until(lambda: ledger.now() > asked_at + 100, 5, "time to pass")
    ledger.approve_all(run)
    decided_at = ledger.journal(run)[-1].at
    work, _ = ledger.begin_first()
    assert work.deadline == decided_at + 500


@pytest.mark.proves("C-51")
def test_the_session_clock_stands_still_between_two_calls_too(ledger: Ledger) -> None:
    run = ledger.admit([proposed(1), proposed(2, level="approve")], limits={"session_ms": 2_000}).run
    work, token = ledger.begin_first()
    ledger.outlast(20)
    ledger.settle(work, token, next_step=2)
    parked = ledger.journal(run)
    ledger.outlast(100)
    ledger.approve_all(run)
    decided_at = ledger.journal(run)[-1].at
    second, _ = ledger.begin_first()
    assert second.deadline == decided_at + 2_000 - (parked[-1].at - parked[0].at)


@pytest.mark.proves("C-52")
def test_a_human_approval_of_an_eligible_call_gives_a_fresh_allowance(ledger: Ledger) -> None:
    budget = replace(POLICY, execution_ms=120_000)
    calls = [proposed(1, level="approve", eligible=True), proposed(2, eligible=True), proposed(3, level="approve")]
    run = ledger.admit(calls).run
    ledger.approve_all(run)
    work, token = ledger.begin_first(policy=budget)
    assert work.deadline == work.store_now + 120_000
    for step in (2, 3):
        work = begun(ledger.settle(work, token, next_step=step, policy=budget).work)
        assert work.deadline == work.store_now + POLICY.tool_timeout_ms


@pytest.mark.proves("C-52")
def test_an_allowance_stays_inside_the_ceiling_less_wrap_up_and_drain(ledger: Ledger) -> None:
    budget = replace(POLICY, execution_ms=120_000)
    run = ledger.admit([proposed(1, level="approve", eligible=True)], deadline_ms=60_000).run
    ceiling = ledger.journal(run)[0].at + 60_000
    ledger.approve_all(run)
    work, _ = ledger.begin_first(policy=budget)
    assert work.deadline == ceiling - POLICY.wrap_up_ms - POLICY.drain_ms
