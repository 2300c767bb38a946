"""Turn handlers whose owner is killed or stopped: run again, ended, or found where they were (C-33, C-34, C-44)."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator

import pytest

from ledger.records import Run
from tests.support.turns import Turns, call
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

Worker = subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, valkey_session: ValkeyProcess) -> Iterator[Turns]:
    """Each story starts its own workers."""
    valkey_session.client().flushall()
    made = Turns(tmp_path_factory.mktemp("turns"), valkey_session.url, lease=30.0, stop_drain_seconds=5.0)
    yield made
    made.close()


@pytest.fixture
def turns(store: Turns) -> Iterator[Turns]:
    """A story of its own; its workers die with it."""
    yield store.fresh()
    for worker in list(store.stack.workers):
        store.stack.kill(worker)


def replace(turns: Turns, worker: Worker) -> Worker:
    """Kills a worker like a power cut would; another one takes over."""
    turns.power_cut(worker)
    return turns.stack.add_worker()


def done(turns: Turns, run: Run, index: int = 0) -> None:
    """Waits until a call of the run has completed."""
    wait_until(lambda: len(turns.read(run).calls) > index, 10, "the call")
    wait_until(lambda: turns.read(run).calls[index].status == "completed", 10, "the call's end")


@pytest.mark.proves("C-33")
def test_without_an_intent_a_handler_is_run_again_at_most_three_times(turns: Turns) -> None:
    worker = turns.stack.add_worker()
    run = turns.deliver("d1", call("look"), turns.gate("never"))
    saved = turns.deliver("d2", turns.gate("later"), call("pay", id="a"))
    # An unprotected call that is under way would count against its run, too.
    done(turns, run)
    for start in (1, 2, 3):
        turns.started("d1", start)
        turns.started("d2", start)
        worker = replace(turns, worker)
    turns.started("d1", 4)
    turns.started("d2", 4)
    turns.open("later")
    assert turns.ended(saved).status == "completed"
    replace(turns, worker)
    ended = turns.ended(run)
    assert (ended.status, ended.end_code) == ("failed", "interrupted")
    assert turns.words("d1") == ["start"] * 4
    assert turns.effects() == ["a"]


@pytest.mark.proves("C-33", "C-60")
def test_after_an_intent_it_is_interrupted_and_the_redelivery_is_the_retry(turns: Turns) -> None:
    worker = turns.stack.add_worker()
    steps = (call("pay", id="a"), call("approved_pay", id="b"), turns.gate("retry"))
    run = turns.deliver("d1", *steps)
    asked = turns.asked(run)
    replace(turns, worker)
    ended = turns.ended(run)
    assert (ended.status, ended.end_code, ended.narration) == ("failed", "interrupted", None)
    assert [found.status.value for found in ended.calls] == ["completed", "cancelled"]
    assert turns.approval(asked).state == "cancelled"
    turn = turns.turn("d1")
    assert turn is not None
    assert not turn.finished
    assert turns.words("d1") == ["start"]

    again = turns.deliver("d1", *steps)
    assert again.run_id != run.run_id
    turns.decide(turns.asked(again))
    turns.open("retry")
    told = turns.ended(again).narration
    assert told[0] == {"refused": "mutation_completed", "recorded": "completed"}
    assert told[1]["status"] == "completed"
    turn = turns.turn("d1")
    assert turn is not None
    assert turn.finished
    assert turns.effects() == ["a", "b"]


@pytest.mark.proves("C-33")
def test_a_replayable_handler_is_answered_from_the_record(turns: Turns) -> None:
    worker = turns.stack.add_worker()
    run = turns.deliver(
        "d1", call("pay", id="a"), call("look"), turns.gate("on"), call("pay", id="b"), handler="follow_again"
    )
    done(turns, run, 1)
    replace(turns, worker)
    turns.started("d1", 2)
    turns.open("on")
    ended = turns.ended(run)
    assert ended.status == "completed"
    assert [told if told == "went on" else told["status"] for told in ended.narration] == [
        "completed",
        "completed",
        "went on",
        "completed",
    ]
    assert ended.narration[0]["result"] == {"paid": True}
    assert ended.narration[1]["result"] == {"seen": True}
    assert len(ended.calls) == 3
    assert turns.effects() == ["a", "b"]


@pytest.mark.proves("C-33")
def test_a_replayable_handler_is_told_that_nobody_knows_of_the_call_that_was_out(turns: Turns) -> None:
    worker = turns.stack.add_worker()
    run = turns.deliver("d1", call("pay_slowly", id="a", after=60), call("pay", id="b"), handler="follow_again")
    wait_until(lambda: turns.effects() == ["a"], 10, "the effect")
    replace(turns, worker)
    ended = turns.ended(run)
    assert [told["status"] for told in ended.narration] == ["outcome_unknown", "completed"]
    assert ended.narration[0]["recorded"] == "outcome_unknown"
    assert turns.effects() == ["a", "b"]


@pytest.mark.proves("C-33")
@pytest.mark.parametrize("handler", ["follow", "follow_again"])
def test_a_handler_that_chooses_other_arguments_makes_no_second_resource_by_itself(turns: Turns, handler: str) -> None:
    worker = turns.stack.add_worker()
    run = turns.deliver("d1", {"vary": "pay"}, turns.gate("never"), handler=handler)
    done(turns, run)
    worker = replace(turns, worker)
    ended = turns.ended(run)
    code = "interrupted" if handler == "follow" else "replay_diverged"
    assert (ended.status, ended.end_code) == ("failed", code)
    assert turns.effects() == ["start-1"]


@pytest.mark.proves("C-33", "C-44")
def test_without_an_intent_other_arguments_take_the_place_of_what_was_asked(turns: Turns) -> None:
    worker = turns.stack.add_worker()
    run = turns.deliver("d1", {"vary": "approved_pay"})
    first = turns.asked(run)
    worker = replace(turns, worker)
    turns.started("d1", 2)
    wait_until(lambda: turns.asked(run) != first, 10, "the second question")
    second = turns.asked(run)
    assert turns.approval(first).state == "cancelled"
    turns.decide(second)
    assert turns.ended(run).status == "completed"
    assert turns.effects() == ["start-2"]


@pytest.mark.proves("C-44")
@pytest.mark.parametrize(
    ("handler", "decided"),
    [("follow", "before the new owner"), ("follow", "after it"), ("follow_blocking", "after it")],
)
def test_a_pending_request_is_found_again_and_not_asked_twice(turns: Turns, handler: str, decided: str) -> None:
    worker = turns.stack.add_worker()
    run = turns.deliver("d1", call("approved_pay", id="a"), handler=handler)
    asked = turns.asked(run)
    turns.power_cut(worker)
    if decided == "before the new owner":
        turns.decide(asked)
    turns.stack.add_worker()
    turns.started("d1", 2)
    if decided == "after it":
        assert turns.asked(run) == asked
        turns.decide(asked)
    ended = turns.ended(run)
    assert ended.narration[0]["status"] == "completed"
    assert [found.approval_id for found in ended.calls] == [asked]
    assert [event.type for event in turns.journal(run)].count("approval_requested") == 1
    assert turns.effects() == ["a"]


@pytest.mark.proves("C-33")
def test_an_unprotected_call_that_takes_three_owners_down_ends_the_run(turns: Turns) -> None:
    worker = turns.stack.add_worker()
    run = turns.deliver("d1", call("die", id="x"))
    for _ in range(3):
        assert worker.wait(20) == -signal.SIGKILL
        turns.power_cut(worker)
        worker = turns.stack.add_worker()
    ended = turns.ended(run)
    assert (ended.status, ended.end_code) == ("failed", "poison_call")
    assert len(turns.words("d1")) == 3


@pytest.mark.proves("C-34", "C-44")
@pytest.mark.parametrize("handler", ["follow", "follow_blocking"])
def test_a_warm_stop_hands_a_waiting_handler_on_at_once(turns: Turns, handler: str) -> None:
    worker = turns.stack.add_worker()
    run = turns.deliver("d1", call("approved_pay", id="a"), handler=handler)
    asked = turns.asked(run)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(4) == 0
    turns.stack.add_worker()
    turns.started("d1", 2)
    assert turns.words("d1")[1] == "stopped OwnerLost"
    turns.decide(asked)
    assert turns.ended(run).status == "completed"
    assert turns.effects() == ["a"]


@pytest.mark.proves("C-34")
@pytest.mark.parametrize("handler", ["follow", "follow_blocking"])
def test_a_warm_stop_lets_a_handler_at_work_finish(turns: Turns, handler: str) -> None:
    worker = turns.stack.add_worker()
    run = turns.deliver("d1", call("pay", id="a"), turns.gate("on"), call("pay", id="b"), handler=handler)
    queued = turns.deliver("d2", call("pay", id="c"))
    done(turns, run)
    assert turns.ended(queued).status == "completed"
    drains = turns.stack.logs().count('"draining"')
    worker.send_signal(signal.SIGTERM)
    wait_until(lambda: turns.stack.logs().count('"draining"') > drains, 5, "the drain")
    later = turns.deliver("d3", call("pay", id="d"))
    turns.open("on")
    assert worker.wait(5) == 0
    assert turns.read(run).status == "completed"
    assert turns.read(later).status == "queued"
    assert turns.words("d1") == ["start", "end"]
    turns.stack.add_worker()
    assert turns.ended(later).status == "completed"
    # Which of the first two comes first is not promised: the handler has to get to its call.
    assert (sorted(turns.effects()[:2]), turns.effects()[2:]) == (["a", "c"], ["b", "d"])


@pytest.mark.proves("C-32", "C-33")
@pytest.mark.parametrize("handler", ["follow", "follow_blocking"])
def test_a_worker_that_slept_past_its_lease_stops_its_handler_and_changes_nothing(turns: Turns, handler: str) -> None:
    sleeper = turns.stack.add_worker()
    run = turns.deliver("d1", call("approved_pay", id="a"), handler=handler)
    asked = turns.asked(run)
    sleeper.send_signal(signal.SIGSTOP)
    turns.end_lease()
    turns.stack.add_worker()
    turns.started("d1", 2)
    sleeper.send_signal(signal.SIGCONT)
    wait_until(lambda: "stopped OwnerLost" in turns.words("d1"), 10, "the first handler to stop")
    turns.decide(asked)
    assert turns.ended(run).status == "completed"
    assert turns.words("d1") == ["start", "start", "stopped OwnerLost", "end"]
    assert turns.effects() == ["a"]
