"""Deadlines of calls on a store whose clock is moved: the sample of the source, and every bound (C-50 to C-52)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.attempts import BeginPolicy, Begun
from ledger.errors import Refused
from ledger.records import Run
from tests.support.clock import MovedClock
from tests.support.ledger import LIMITS, POLICY, Ledger, begun, key, proposed, sid_of
from tests.support.valkey import ValkeyProcess

BUDGET = replace(POLICY, execution_ms=120_000, budget_ceiling_ms=900_000)
SLACK_MS = 1_500
"""What the real clock adds during a test."""


class Clock:
    """The clock of the module's store."""

    def __init__(self, directory: Path) -> None:
        self._moved = MovedClock(directory / "shim")
        self.server = ValkeyProcess(directory / "valkey", env=self._moved.env)

    def advance(self, seconds: float) -> None:
        """The store is so much later now."""
        self._moved.advance(seconds, self.server)


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clock]:
    made = Clock(tmp_path_factory.mktemp("clocked"))
    made.server.start()
    yield made
    made.server.stop()


@pytest.fixture
def ledger(clock: Clock) -> Iterator[Ledger]:
    client = clock.server.client()
    client.flushall()
    client.close()
    made = Ledger(clock.server.url)
    yield made
    made.close()


def approximately(value: float, milliseconds: float) -> bool:
    """At most that long, and shorter only by what the test itself took."""
    return milliseconds - SLACK_MS <= value <= milliseconds


def after_a_long_wait(
    ledger: Ledger, clock: Clock, policy: BeginPolicy, *, ran: float, waited: float, **limits: Any
) -> tuple[Run, Begun]:
    """A plan whose first call ran so long before a person was waited for so long; its second call, begun then."""
    limits = {"session_ms": 300_000, "approval_ms": 890_000, **limits}
    calls = [proposed(0), proposed(1, level="approve", eligible=True)]
    run = ledger.admit(calls, limits=limits).run
    work, token = ledger.begin_first(policy=policy)
    clock.advance(ran)
    ledger.settle(work, token, policy=policy, next_step=2)
    clock.advance(waited)
    ledger.approve_all(run)
    (claimed,) = ledger.claim(policy=policy)
    return run, begun(claimed.work)


@pytest.mark.proves("C-51")
def test_the_sample_by_default_five_seconds_stay_five(ledger: Ledger, clock: Clock) -> None:
    _, work = after_a_long_wait(ledger, clock, POLICY, ran=295, waited=120)
    assert approximately(work.deadline - work.store_now, 5_000)


@pytest.mark.proves("C-52")
def test_the_sample_with_a_budget_the_approval_grants_its_execution_seconds(ledger: Ledger, clock: Clock) -> None:
    _, work = after_a_long_wait(ledger, clock, BUDGET, ran=295, waited=120)
    assert work.deadline - work.store_now == 120_000


@pytest.mark.proves("C-52")
def test_the_sample_the_ceiling_less_its_reserves_limits_it(ledger: Ledger, clock: Clock) -> None:
    # 900 s less 20 s wrap-up and 5 s drain leave 875 s from admission; 800 s have gone.
    _, work = after_a_long_wait(ledger, clock, BUDGET, ran=100, waited=700)
    assert approximately(work.deadline - work.store_now, 75_000)


@pytest.mark.proves("C-50", "C-52")
def test_an_exhausted_budget_is_never_revived(ledger: Ledger, clock: Clock) -> None:
    run = ledger.admit([proposed(1, level="approve", eligible=True)], limits={"approval_ms": 890_000}).run
    clock.advance(876)
    ledger.approve_all(run)
    assert ledger.claim(policy=BUDGET)[0].work
    assert ledger.statuses(run) == ["not_executed"]
    ended = [event for event in ledger.journal(run) if event.type == "tool_result"]
    assert [event.word for event in ended] == ["deadline"]
    assert ledger.outcomes() == []


@pytest.mark.proves("C-52")
def test_a_rule_s_answer_and_an_unselected_tool_get_no_allowance(ledger: Ledger) -> None:
    cases: list[dict[str, Any]] = [{"level": "approve", "rule": "small", "eligible": True}, {"level": "approve"}]
    for n, options in enumerate(cases):
        run = ledger.admit([proposed(n, **options)], did=f"d{n}", session=f"s{n}").run
        ledger.approve_all(run)
        (claimed,) = ledger.claim(policy=BUDGET)
        work = begun(claimed.work)
        assert work.deadline - work.store_now == POLICY.tool_timeout_ms


@pytest.mark.proves("C-52")
def test_a_host_s_own_allowance_goes_before_the_worker_s(ledger: Ledger) -> None:
    call = replace(proposed(1, level="approve"), allowance_ms=77_000)
    for policy in (POLICY, BUDGET):
        run = ledger.admit([call], did=str(policy.execution_ms), session=f"s{policy.execution_ms}").run
        ledger.approve_all(run)
        (claimed,) = ledger.claim(policy=policy)
        work = begun(claimed.work)
        assert work.deadline - work.store_now == 77_000


@pytest.mark.proves("C-51")
def test_without_a_budget_the_earliest_of_three_bounds_holds(ledger: Ledger, clock: Clock) -> None:
    cases: list[tuple[dict[str, int], int]] = [
        ({}, 60_000),
        ({"session_ms": 30_000}, 30_000),
        ({"ceiling_ms": 20_000}, 20_000),
    ]
    for n, (limits, expected) in enumerate(cases):
        ledger.admit([proposed(n)], did=f"d{n}", session=f"s{n}", limits=limits)
        (claimed,) = ledger.claim()
        work = begun(claimed.work)
        assert approximately(work.deadline - work.store_now, expected)


@pytest.mark.proves("C-51")
def test_the_session_clock_stands_still_for_people_only(ledger: Ledger, clock: Clock) -> None:
    """Waiting for a worker counts, waiting for a person does not."""
    limits = {"session_ms": 60_000, "approval_ms": 300_000}
    run = ledger.admit([proposed(0, level="approve")], limits=limits).run
    clock.advance(100)
    ledger.approve_all(run)
    clock.advance(50)
    (claimed,) = ledger.claim()
    work = begun(claimed.work)
    assert approximately(work.deadline - work.store_now, 10_000)


@pytest.mark.proves("C-41", "C-50")
def test_the_ceiling_never_moves_and_a_late_approval_is_refused(ledger: Ledger, clock: Clock) -> None:
    run = ledger.admit([proposed(0, level="approve")], limits={"approval_ms": 10**7}).run
    request = ledger.approval(run.calls[0].approval_id)
    assert request.expires_at == request.requested_at + LIMITS.ceiling_ms
    clock.advance(900)
    # Nothing swept or read it before: the decision itself finds that it is too late.
    assert ledger.decide(request.approval_id).how == "expired"
    with pytest.raises(Refused) as caught:
        ledger.decide(request.approval_id)
    assert caught.value.code == "approval_expired"
    assert ledger.statuses(run) == ["expired"]
    assert ledger.outcomes() == []


@pytest.mark.proves("C-50")
def test_a_run_past_its_ceiling_begins_nothing(ledger: Ledger, clock: Clock) -> None:
    run = ledger.admit([proposed(0), proposed(1)], on_error="continue").run
    clock.advance(901)
    ledger.claim()
    assert ledger.statuses(run) == ["not_executed", "not_executed"]
    assert ledger.read(run).logical_turn_id is None
    assert ledger.raw.hget(key(f"session:{sid_of('s1')}"), "c") is None


@pytest.mark.proves("C-91")
def test_not_after_is_the_deadline_the_drain_and_the_lease(ledger: Ledger, clock: Clock) -> None:
    ledger.admit([proposed(0)])
    work, token = ledger.begin_first()
    assert ledger.entry(work).not_after == work.deadline + POLICY.drain_ms + POLICY.lease_ms
    ledger.reclaim()
    clock.advance(94)
    with pytest.raises(Refused) as caught:
        ledger.reconcile(work, completed=False)
    assert caught.value.code == "attempt_may_be_running"
    clock.advance(2)
    assert ledger.reconcile(work, completed=False).record["status"] == "not_executed"
    # A zombie's report changes nothing any more.
    assert ledger.settle(work, token).how == "kept"
    assert ledger.status(work) == "approved"
