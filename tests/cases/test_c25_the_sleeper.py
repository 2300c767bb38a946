"""C25: a worker that slept past its lease wakes up: it sends nothing any more, and what it knows overwrites nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.engine import IncomingMessage
from ledger.errors import Refused
from tests.support.staging import Seen, Stages
from tests.support.wait import wait_until

Make = Callable[[str], Stages]
OK = "mcp__done__ok"


@pytest.fixture
def make(store_url: str, tmp_path: Path) -> Iterator[Make]:
    made: list[Stages] = []

    def stages(fault: str) -> Stages:
        made.append(Stages(tmp_path / f"stages-{len(made)}", store_url, fault=fault))
        return made[-1]

    yield stages
    for stage in made:
        stage.close()


def asleep(stages: Stages, session: str) -> IncomingMessage:
    """A delivery whose worker fell asleep at its fault; its run."""
    told = IncomingMessage(session, user="dana", calls=[(OK, {"stage": session})], delivery_id="d1")
    result = stages.engine.handle_with_results(told, wait_seconds=0)
    stages.runs[session] = stages.read(result.run_id)
    wait_until(stages.frozen, 20, "the worker to fall asleep")
    return told


def taken_over(stages: Stages, session: str) -> Any:
    """Another worker takes over and publishes that nobody knows; the sleeper is returned."""
    sleeper = stages.worker
    stages.succeed()
    stages.ended(session)
    assert stages.seen(session).call == "outcome_unknown"
    return sleeper


@pytest.mark.proves("C-10", "C-32", "C-53")
def test_asleep_before_the_call_is_written_it_is_never_sent(make: Make) -> None:
    stages = make("recheck.due:1:stop")
    asleep(stages, "before")
    sleeper = taken_over(stages, "before")
    stages.thaw(sleeper)
    # First-hand: it knows that it sent nothing.
    wait_until(lambda: stages.seen("before").record == "not_executed", 20, "its report")
    assert stages.seen("before").sent == 0
    assert stages.seen("before").run == "failed"


@pytest.mark.proves("C-10", "C-32")
def test_asleep_with_the_reply_it_reports_late_and_first_hand(make: Make) -> None:
    stages = make("reply.received:1:stop")
    asleep(stages, "replied")
    sleeper = taken_over(stages, "replied")
    stages.thaw(sleeper)
    wait_until(lambda: stages.seen("replied").record == "completed", 20, "its report")
    # The run had ended by then; terminal states never change.
    assert stages.seen("replied") == Seen("failed", "completed", "completed", None, 1)


@pytest.mark.proves("C-91")
def test_a_zombie_changes_nothing_that_a_person_has_decided_and_raises_an_alarm(make: Make) -> None:
    stages = make("reply.received:1:stop")
    told = asleep(stages, "zombie")
    sleeper = taken_over(stages, "zombie")
    mutation = stages.look("zombie").calls[0].mutation_id
    with pytest.raises(Refused) as caught:
        stages.engine.reconcile_mutation(told, mutation, completed=False)
    assert caught.value.code == "attempt_may_be_running"
    # Somebody insists, wrongly: the dispatcher is only asleep.
    record = stages.engine.reconcile_mutation(told, mutation, completed=False, dispatcher_stopped=True)
    assert record["status"] == "not_executed"
    stages.thaw(sleeper)
    wait_until(lambda: '"event": "late_report"' in stages.stack.logs(), 20, "the alarm")
    alarm = next(line for line in stages.stack.logs().splitlines() if '"late_report"' in line)
    assert '"verdict": "completed"' in alarm
    assert '"level": "error"' in alarm
    assert stages.seen("zombie").record == "not_executed"
    assert stages.seen("zombie").sent == 1


@pytest.mark.proves("C-13", "C-50")
def test_asleep_between_approval_and_intent_past_the_run_s_time_it_begins_nothing(make: Make) -> None:
    stages = make("claim.asked:1:stop")
    stages.deliver("waiting", seconds=4.0)
    stages.approve("waiting")
    wait_until(stages.frozen, 20, "the worker to fall asleep before its first claim")
    wait_until(lambda: time.monotonic() > stages.deadlines["waiting"] + 0.2, 10, "the run's time to be over")
    stages.thaw()
    stages.ended("waiting")
    assert stages.seen("waiting") == Seen("failed", "not_executed", None, None, 0)
