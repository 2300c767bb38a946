"""One call on its way: handed over at most once, and always known on which side of that it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ledger.faultpoints import reach


class NotSent(Exception):
    """Raised towards the transport: no byte of this request may be handed over."""


@dataclass(slots=True, eq=False)
class Dispatch:
    """The state of one request. The transport calls `hand_over`; whoever waits calls `abandon` and `close`.

    `handed_over` turns true right before the first byte may move, and never back: it is what separates
    `not_executed` from `outcome_unknown` (C-56); from then on `refusal` stays None. `raw` is the result object as it
    arrived.
    """

    arguments: dict[str, Any]
    last_check: Callable[[], str | None]
    request_id: int | None = None
    handed_over: bool = False
    refusal: str | None = None
    closed: bool = False
    raw: dict[str, Any] | None = None

    def hand_over(self) -> None:
        """The last check (C-53), in the same step as the write that follows. Raises NotSent."""
        # Before the check: what it says of a request that is on its way already would be taken for a refusal.
        if self.handed_over or self.closed:
            raise NotSent
        reach("recheck.due")
        if self.refusal is None:
            self.refusal = self.last_check()
        if self.refusal is not None:
            raise NotSent
        reach("recheck.passed")
        self.handed_over = True

    def take_back(self) -> None:
        """Only for a transport that knows its write moved no byte."""
        self.handed_over = False

    def abandon(self, reason: str) -> None:
        """Nobody waits any more: if nothing was handed over yet, nothing will be."""
        if not self.handed_over and self.refusal is None:
            self.refusal = reason

    def close(self) -> None:
        """The exchange is over, and its caller may go on elsewhere: what was not handed over by now never is."""
        self.closed = True
