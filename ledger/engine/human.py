"""What a custom approval adapter is asked, and what it answers (C-40 to C-42)."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class HumanRequest:
    """One exact call that a person must decide. `level` is `approve`, or `confirm`: the person types the tool's name.

    `arguments` are what the approval is bound to; changing them here changes nothing. `deadline_monotonic` is when, by
    `time.monotonic`, a decision comes too late, however the adapter waits: the store's clock refuses it then.
    """

    approval_id: str
    tool: str
    arguments: dict[str, Any]
    level: str
    mutation_id: str
    session_id: str
    run_id: str
    user: str
    requested_by: str
    deadline_monotonic: float | None
    _closed: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    def remaining_timeout(self, default: float) -> float:
        """Seconds to wait for a person: `default`, or what is left until the deadline; never negative."""
        if self.deadline_monotonic is None:
            return default
        return max(0.0, min(default, self.deadline_monotonic - time.monotonic()))

    @property
    def closed(self) -> bool:
        """Whether nobody needs the answer any more: decided elsewhere, expired, run ended. Any thread may ask."""
        return self._closed.is_set()

    def wait_closed(self, timeout: float) -> bool:
        """Waits for `closed`; for adapters that wait in a thread."""
        return self._closed.wait(timeout)

    def close(self) -> None:
        """Called by the engine."""
        self._closed.set()


@dataclass(frozen=True, slots=True)
class HumanDecision:
    """A named person's answer. `by` must hold the role `approve`; `confirm` is the tool's name, as typed."""

    approved: bool
    by: str
    confirm: str | None = None
    comment: str | None = None
