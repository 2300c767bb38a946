"""How long to wait before a dead child is started again. Pure."""

from __future__ import annotations

FIRST_SECONDS = 0.2
LAST_SECONDS = 5.0
# A child that lived this long had started properly, so its death begins a new row.
SETTLED_SECONDS = 10.0


class Backoff:
    """Delays of 0.2 s doubling to 5 s; a child that lived long enough starts again at 0.2 s."""

    def __init__(self) -> None:
        self._next = FIRST_SECONDS

    def delay(self, lived: float) -> float:
        """Seconds to wait after a death, given the seconds that the child had lived."""
        if lived >= SETTLED_SECONDS:
            self._next = FIRST_SECONDS
        now, self._next = self._next, min(self._next * 2, LAST_SECONDS)
        return now
