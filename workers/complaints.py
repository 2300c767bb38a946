"""What every shard says while the store is away, as one line now and then instead of sixteen a second."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)

QUIET_SECONDS = 10.0


class Complaints:
    """Logs a failure at once when it is new, and again at most every ten seconds, with how often it came."""

    def __init__(self, event: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._event = event
        self._clock = clock
        self._counts: dict[str, int] = {}
        self._logged: dict[str, float] = {}

    def note(self, code: str) -> None:
        """One more failure of this kind."""
        now = self._clock()
        self._counts[code] = self._counts.get(code, 0) + 1
        if now - self._logged.get(code, float("-inf")) >= QUIET_SECONDS:
            log.warning(self._event, code=code, times=self._counts.pop(code))
            self._logged[code] = now
