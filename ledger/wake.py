"""Waking a worker: a small protocol, so that the rules know no job queue (architecture, step 3)."""

from __future__ import annotations

from typing import Protocol


class Waker(Protocol):
    """Asks some worker to look for ready sessions. Best effort: a lost wake-up costs at most 2 s."""

    def wake(self) -> None:
        """Enqueues one `drain` job; never raises for a store that is away, the sweep finds the session."""
