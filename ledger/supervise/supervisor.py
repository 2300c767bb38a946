"""The loop of `up`: start the children, start again what dies, stop them in order on a signal."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from ledger.errors import LedgerError
from ledger.supervise.backoff import Backoff
from ledger.supervise.process import Child

TICK_SECONDS = 0.05
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(slots=True)
class _Watched:
    child: Child
    backoff: Backoff = field(default_factory=Backoff)
    started_at: float = 0.0
    again_at: float | None = None


class Supervisor:
    """Runs `groups` of children: started in the order given, stopped group by group from the last one.

    `say` takes one line for people. `each_tick` is called about 20 times a second while all runs. Must be
    run in the main thread, because it listens to signals.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[Child]],
        *,
        say: Callable[[str], None],
        each_tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._groups = [[_Watched(child) for child in group] for group in groups]
        self._say = say
        self._each_tick = each_tick
        self._signals = 0
        self._pause = threading.Event()

    def run(self) -> None:
        """Run until SIGTERM, SIGINT or SIGHUP, then stop in order; a second signal stops at once."""
        before = {number: signal.signal(number, self._on_signal) for number in _STOP_SIGNALS}
        try:
            self._watch()
        finally:
            self._stop()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _watch(self) -> None:
        for group in self._groups:
            for watched in group:
                if watched.child.exit_code() is not None:
                    self._launch(watched)
                watched.started_at = time.monotonic()
        while not self._signals:
            for group in self._groups:
                for watched in group:
                    self._look_after(watched)
            self._each_tick()
            self._pause.wait(TICK_SECONDS)

    def _look_after(self, watched: _Watched) -> None:
        child, now = watched.child, time.monotonic()
        if watched.again_at is not None:
            if now >= watched.again_at:
                watched.again_at = None
                self._launch(watched)
            return
        code = child.exit_code()
        if code is not None:
            self._schedule(watched, f"{child.name} ended ({describe(code)})")
        elif child.hung():
            child.kill()
            self._schedule(watched, f"{child.name} does not answer any more and was killed")

    def _launch(self, watched: _Watched) -> None:
        watched.started_at = time.monotonic()
        try:
            watched.child.launch()
        except (LedgerError, OSError) as error:
            self._schedule(watched, f"{watched.child.name} cannot start: {error}")

    def _schedule(self, watched: _Watched, what: str) -> None:
        now = time.monotonic()
        delay = watched.backoff.delay(now - watched.started_at)
        watched.again_at = now + delay
        self._say(f"{what}; starting it again in {delay:g} s")

    def _stop(self) -> None:
        for group in reversed(self._groups):
            running = [watched.child for watched in group if watched.child.exit_code() is None]
            for child in running:
                child.terminate()
            begun = time.monotonic()
            while running := [child for child in running if child.exit_code() is None]:
                late = time.monotonic() - begun
                for child in running:
                    if self._signals > 1:
                        child.kill()
                    elif late > child.stop_seconds:
                        self._say(f"{child.name} did not end within {child.stop_seconds:g} s and is killed")
                        child.kill()
                self._pause.wait(TICK_SECONDS)

    def _on_signal(self, number: int, frame: FrameType | None) -> Any:
        self._signals += 1
        if self._signals == 1:
            self._say("stopping; a second signal stops at once")


def describe(code: int) -> str:
    """An exit status in words: `exit 3`, `SIGKILL`."""
    if code >= 0:
        return f"exit {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
