"""The supervisor's loop with real processes, driven by signals to this one."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.errors import LedgerError
from ledger.supervise import ProcessChild, Supervisor
from ledger.supervise.process import Child
from ledger.supervise.supervisor import describe

STUBBORN = "import signal, sys, time; signal.signal(15, signal.SIG_IGN); open(sys.argv[1], 'w').close(); time.sleep(60)"
DRAINING = (
    "import signal, sys; signal.signal(15, lambda *_: sys.exit(0)); open(sys.argv[1], 'w').close(); signal.pause()"
)


def child(name: str, code: str, mark: Path, stop_seconds: float = 10) -> ProcessChild:
    """A Python child that makes the file `mark` when it is ready for signals."""
    return ProcessChild(name, [sys.executable, "-c", code, str(mark)], stop_seconds=stop_seconds)


def once(condition: Callable[[], object], *numbers: signal.Signals) -> Callable[[], None]:
    """A tick that signals this process the first time that `condition` holds."""
    sent = False

    def tick() -> None:
        nonlocal sent
        if not sent and condition():
            sent = True
            for number in numbers:
                os.kill(os.getpid(), number)

    return tick


@pytest.mark.proves("C-34")
def test_a_child_that_drains_ends_by_itself_and_a_stubborn_one_is_killed_in_time(tmp_path: Path) -> None:
    said: list[str] = []
    marks = [tmp_path / "stubborn", tmp_path / "draining"]
    stubborn = child("stubborn", STUBBORN, marks[0], stop_seconds=0.3)
    draining = child("draining", DRAINING, marks[1])
    both = once(lambda: all(mark.exists() for mark in marks), signal.SIGTERM)
    Supervisor([[stubborn], [draining]], say=said.append, each_tick=both).run()
    assert (draining.exit_code(), stubborn.exit_code()) == (0, -signal.SIGKILL)
    assert said == [
        "stopping; a second signal stops at once",
        "stubborn did not end within 0.3 s and is killed",
    ]


@pytest.mark.proves("C-34")
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_every_child_at_once(tmp_path: Path, second: signal.Signals) -> None:
    mark = tmp_path / "ready"
    stubborn = child("stubborn", STUBBORN, mark, stop_seconds=60)
    begun = time.monotonic()
    Supervisor([[stubborn]], say=lambda _: None, each_tick=once(mark.exists, signal.SIGHUP, second)).run()
    assert stubborn.exit_code() == -signal.SIGKILL
    assert time.monotonic() - begun < 30


def test_signal_handlers_are_put_back(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    Supervisor([], say=lambda _: None, each_tick=once(lambda: True, signal.SIGTERM)).run()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)] == before


def test_a_child_that_keeps_dying_is_started_less_and_less_often(tmp_path: Path) -> None:
    said: list[str] = []
    short = ProcessChild("short", [sys.executable, "-I", "-S", "-c", "raise SystemExit(3)"])
    Supervisor([[short]], say=said.append, each_tick=once(lambda: len(said) >= 3, signal.SIGTERM)).run()
    assert said[:3] == [f"short ended (exit 3); starting it again in {delay} s" for delay in ("0.2", "0.4", "0.8")]


def test_a_child_that_cannot_start_is_tried_again(tmp_path: Path) -> None:
    class Refusing(ProcessChild):
        tries = 0

        def launch(self) -> None:
            self.tries += 1
            if self.tries < 3:
                raise LedgerError("no place to run")
            super().launch()

    said: list[str] = []
    mark = tmp_path / "ready"
    refusing = Refusing("fussy", [sys.executable, "-c", DRAINING, str(mark)])
    Supervisor([[refusing]], say=said.append, each_tick=once(mark.exists, signal.SIGTERM)).run()
    assert said[:2] == [f"fussy cannot start: no place to run; starting it again in {delay} s" for delay in (0.2, 0.4)]
    assert refusing.exit_code() == 0


def test_a_hung_child_is_killed_and_started_again(tmp_path: Path) -> None:
    class Hanging(ProcessChild):
        asked = 0

        def hung(self) -> bool:
            self.asked += 1
            return self.asked == 1

    said: list[str] = []
    hanging: Child = Hanging("quiet", [sys.executable, "-c", DRAINING, str(tmp_path / "ready")])
    ready = once(lambda: said and (tmp_path / "ready").exists(), signal.SIGTERM)
    Supervisor([[hanging]], say=said.append, each_tick=ready).run()
    assert said[0] == "quiet does not answer any more and was killed; starting it again in 0.2 s"


@pytest.mark.parametrize(("code", "text"), [(0, "exit 0"), (3, "exit 3"), (-9, "SIGKILL"), (-250, "signal 250")])
def test_exit_codes_in_words(code: int, text: str) -> None:
    assert describe(code) == text
