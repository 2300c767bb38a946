"""Sessions that waited for a person come back one by one when the worker has room for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Gate:
    """Counts sessions that only wait for a person: they take no place from others, until they go on (C-31).

    `active` says how many sessions are owned in all; `room` is how many may be at work at once.
    """

    def __init__(self, room: int) -> None:
        self.parked = 0
        self.active: Callable[[], int] = lambda: 0
        self.place_freed: Callable[[], None] = lambda: None
        self._room = room
        self._line: deque[Callable[[], None]] = deque()

    @property
    def full(self) -> bool:
        """Whether a session that waited must wait a little longer."""
        return self.active() - self.parked >= self._room

    def park(self) -> None:
        """A session waits for a person: somebody else may take its place."""
        self.parked += 1
        self.freed()
        self.place_freed()

    def unpark(self) -> None:
        """It goes on, or is gone."""
        self.parked -= 1

    def line_up(self, wake: Callable[[], None]) -> None:
        """Calls `wake` once when it may be this one's turn."""
        if wake not in self._line:
            self._line.append(wake)

    def leave_line(self, wake: Callable[[], None]) -> None:
        """Takes it back."""
        if wake in self._line:
            self._line.remove(wake)

    def freed(self) -> None:
        """A place is free: the first in line may go on."""
        if self._line and not self.full:
            self._line.popleft()()
