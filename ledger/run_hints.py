"""Who waits for which run in a process, and what a hint on a journal's channel means for them.

A hint is `<run id> <journal length>`, and ` end` when the run has ended; a message holds one a line. It says that
something may have happened, never what: whoever waits registers first, then reads the store, and looks again every
second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

ENDS_REMEMBERED = 8192
"""Ends heard of before anybody waited; a forgotten one costs its waiter a second."""


class Settable(Protocol):
    """An event of threads or of a loop."""

    def set(self) -> object:
        """Lets the waiter go on."""


E = TypeVar("E", bound=Settable)


class RunHints(Generic[E]):
    """Events by run id. `make` makes one. Safe in threads; a loop's events are only set in its own thread."""

    def __init__(self, make: Callable[[], E]) -> None:
        self._make = make
        self._any: dict[bytes, set[E]] = {}
        self._end: dict[bytes, set[E]] = {}
        self._ended: dict[bytes, None] = {}
        self._lock = threading.Lock()

    @contextmanager
    def watch(self, run_id: str) -> Iterator[E]:
        """An event that is set whenever something may have happened in the run; the waiter clears it."""
        with self._listed(self._any, run_id.encode()) as hint:
            yield hint

    @contextmanager
    def watch_end(self, run_id: str) -> Iterator[E]:
        """The same for the run's end alone, also when that was heard of shortly before."""
        key = run_id.encode()
        with self._listed(self._end, key) as hint:
            with self._lock:
                heard = key in self._ended
                self._ended.pop(key, None)
            if heard:
                hint.set()
            yield hint

    @contextmanager
    def _listed(self, waiters: dict[bytes, set[E]], key: bytes) -> Iterator[E]:
        hint = self._make()
        with self._lock:
            waiters.setdefault(key, set()).add(hint)
        try:
            yield hint
        finally:
            with self._lock:
                mine = waiters[key]
                mine.discard(hint)
                if not mine:
                    del waiters[key]

    @property
    def waiting(self) -> int:
        """How many runs are being waited for."""
        return len(self._any.keys() | self._end.keys())

    def heard(self, data: bytes) -> None:
        """Hands the hints of one message on."""
        for line in data.split(b"\n"):
            self._heard(line)

    def _heard(self, data: bytes) -> None:
        key, _, rest = data.partition(b" ")
        ended = rest.endswith(b" end")
        with self._lock:
            hints = [*self._any.get(key, ()), *(self._end.get(key, ()) if ended else ())]
            if ended and key not in self._end:
                self._ended[key] = None
                if len(self._ended) > ENDS_REMEMBERED:
                    del self._ended[next(iter(self._ended))]
        for hint in hints:
            hint.set()

    def all_again(self) -> None:
        """Hints may have been missed: everybody looks."""
        with self._lock:
            hints = [hint for mine in (*self._any.values(), *self._end.values()) for hint in mine]
        for hint in hints:
            hint.set()
