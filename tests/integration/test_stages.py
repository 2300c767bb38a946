"""What a cancel, a deadline, SIGTERM and SIGKILL make of a delivery at each stage of its path.

Each row: the run, its call, the published record with its reason, and how often the server was called. `replied` has a
worker of its own, which is frozen with the reply in its hands.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.staging import Seen, Stages, wait_dead
from tests.support.wait import wait_until

TOGETHER = ("settled", "waiting", "approved", "dispatched", "intent", "before")
DONE = ("completed", "completed", "completed", None, 1)

CANCEL: dict[str, tuple[str, Seen]] = {
    "before": ("cancelled", Seen("cancelled")),
    "waiting": ("cancelled", Seen("cancelled", "cancelled")),
    "approved": ("cancelled", Seen("cancelled", "cancelled")),
    "intent": ("cancelling", Seen("cancelled", "not_executed", "not_executed")),
    "dispatched": ("cancelling", Seen("cancelled", "outcome_unknown", "outcome_unknown", None, 1)),
    "replied": ("cancelling", Seen("cancelled", "completed", "completed", None, 1)),
    "settled": ("ended", Seen(*DONE)),
}
DEADLINE: dict[str, Seen] = {
    "before": Seen("failed"),
    "waiting": Seen("failed", "expired"),
    "approved": Seen("failed", "not_executed"),
    "intent": Seen("failed", "not_executed", "not_executed", "pre_dispatch_deadline"),
    "dispatched": Seen("failed", "outcome_unknown", "outcome_unknown", "execution_timeout", 1),
    "replied": Seen(*DONE),
    "settled": Seen(*DONE),
}
ASKED = Seen("waiting_for_approval", "waiting_for_approval")
SIGTERM: dict[str, Seen] = {
    "before": ASKED,
    "waiting": ASKED,
    "approved": Seen(*DONE),
    "intent": Seen("failed", "not_executed", "not_executed"),
    "dispatched": Seen("failed", "outcome_unknown", "outcome_unknown", None, 1),
    "replied": Seen(*DONE),
    "settled": Seen(*DONE),
}
SIGKILL: dict[str, Seen] = {
    "before": ASKED,
    "waiting": ASKED,
    "approved": Seen(*DONE),
    "intent": Seen("failed", "outcome_unknown", "outcome_unknown"),
    "dispatched": Seen("failed", "outcome_unknown", "outcome_unknown", None, 1),
    "replied": Seen("failed", "outcome_unknown", "outcome_unknown", None, 1),
    "settled": Seen(*DONE),
}

Make = Callable[[str], Stages]


@pytest.fixture
def make(store_url: str, tmp_path: Path) -> Iterator[Make]:
    """Makes the stage; `fault` arms its first worker."""
    made: list[Stages] = []

    def stages(fault: str = "") -> Stages:
        made.append(Stages(tmp_path / f"stages-{len(made)}", store_url, fault=fault))
        return made[-1]

    yield stages
    for stage in made:
        stage.close()


def table(stages: Stages) -> dict[str, Seen]:
    return {stage: stages.seen(stage) for stage in stages.runs}


@pytest.mark.proves("C-55")
def test_cancel(make: Make) -> None:
    stages = make("")
    for stage in TOGETHER:
        stages.deliver(stage)
    began = time.monotonic()
    answers = {stage: stages.cancel(stage) for stage in TOGETHER}
    for stage in TOGETHER:
        stages.ended(stage, timeout=5.0)
    # Final and durable by cancel + 5 s, whatever becomes of the server's process.
    assert time.monotonic() - began < 5.0
    assert answers == {stage: CANCEL[stage][0] for stage in TOGETHER}
    assert table(stages) == {stage: CANCEL[stage][1] for stage in TOGETHER}
    # Terminal states never change: not by another cancel, nor by what is let go on now.
    again = {stage: stages.cancel(stage) for stage in TOGETHER}
    assert again == {stage: "ended" if stage == "settled" else "cancelled" for stage in TOGETHER}
    stages.release()
    stages.gate("held").touch()
    wait_until(lambda: stages.fakes["held"].events("received"), 10, "the server to come alive")
    assert table(stages) == {stage: CANCEL[stage][1] for stage in TOGETHER}


@pytest.mark.proves("C-55")
def test_cancel_when_the_reply_is_there(make: Make) -> None:
    stages = make("settle.asked:1:stop")
    stages.deliver("replied")
    assert stages.cancel("replied") == CANCEL["replied"][0]
    stages.thaw()
    stages.ended("replied")
    assert stages.seen("replied") == CANCEL["replied"][1]
    assert stages.cancel("replied") == "cancelled"


@pytest.mark.proves("C-50", "C-54", "C-57")
def test_deadline(make: Make) -> None:
    stages = make("")
    for stage in TOGETHER:
        stages.deliver(stage, seconds=5.0)
    for stage in ("settled", "waiting", "dispatched", "intent", "before"):
        stages.ended(stage)
    # What waits behind another run of its session is not begun once that run has ended.
    stages.release()
    stages.ended("approved")
    assert table(stages) == {stage: DEADLINE[stage] for stage in TOGETHER}
    assert stages.look("before").end_code == "request_ceiling"
    assert stages.words("approved") == ["deadline"]


@pytest.mark.proves("C-50")
def test_deadline_when_the_reply_is_there(make: Make) -> None:
    stages = make("settle.asked:1:stop")
    ends = time.monotonic() + 4.0
    stages.deliver("replied", seconds=4.0)
    wait_until(lambda: time.monotonic() > ends + 0.5, 10, "the deadline to pass")
    stages.thaw()
    stages.ended("replied")
    assert stages.seen("replied") == DEADLINE["replied"]


@pytest.mark.proves("C-34", "C-55")
def test_sigterm(make: Make) -> None:
    stages = make("")
    for stage in TOGETHER:
        stages.deliver(stage)
    stages.worker.send_signal(signal.SIGTERM)
    assert wait_dead(stages.worker, 20) == 0
    stages.release()
    stages.succeed()
    _settle(stages)
    assert table(stages) == {stage: SIGTERM[stage] for stage in TOGETHER}


@pytest.mark.proves("C-34")
def test_sigterm_when_the_reply_is_there(make: Make) -> None:
    stages = make("settle.asked:1:stop")
    stages.deliver("replied")
    stages.worker.send_signal(signal.SIGTERM)
    stages.thaw()
    assert wait_dead(stages.worker, 20) == 0
    assert stages.seen("replied") == SIGTERM["replied"]


@pytest.mark.proves("C-32", "C-33")
def test_sigkill(make: Make) -> None:
    stages = make("")
    for stage in TOGETHER:
        stages.deliver(stage)
    stages.stack.kill(stages.worker)
    stages.release()
    stages.succeed()
    _settle(stages)
    assert table(stages) == {stage: SIGKILL[stage] for stage in TOGETHER}


@pytest.mark.proves("C-33")
def test_sigkill_when_the_reply_is_there(make: Make) -> None:
    stages = make("settle.asked:1:stop")
    stages.deliver("replied")
    stages.stack.kill(stages.worker)
    stages.succeed()
    stages.ended("replied")
    assert stages.seen("replied") == SIGKILL["replied"]


def _settle(stages: Stages) -> None:
    for stage in ("approved", "dispatched", "intent"):
        stages.ended(stage)
    for stage in ("waiting", "before"):
        stages.asked(stage)
