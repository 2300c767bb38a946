"""Following a run's journal over broken connections: whatever was seen is not told again (C-112)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, cast

from ledger.client.errors import ServiceUnavailable
from ledger.client.shapes import Event
from ledger.errors import LedgerError, Refused, StoreUnavailable

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
DONE = "done"

Reopen = Callable[[str, int], Iterator[Any]]
"""Opens a run's journal after a position: run id and number of the last event seen."""


class Pauses:
    """Growing pauses between tries, until `seconds` went by without any success."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.succeeded()

    def succeeded(self) -> None:
        """Something came: the time begins anew."""
        self._end = time.monotonic() + self._seconds
        self._pause = FIRST_PAUSE_SECONDS

    def after(self, error: LedgerError) -> bool:
        """Waits as long as `error` asks, else a pause; False at once when the time would be over then."""
        wait: float = error.extra.get("retry_after") or self._pause
        if time.monotonic() + wait >= self._end:
            return False
        time.sleep(wait)
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        return True


def follow(begin: Callable[[], Iterator[Any]], reopen: Reopen, pauses: Pauses, *, seen: int = 0) -> Iterator[Event]:
    """Events until `done`, each once. `begin` opens the stream as long as no run is known, then `reopen` does.

    Raises:
        ServiceUnavailable, StoreUnavailable: nothing came for longer than `pauses` allow.
        Refused: the run is not known any more.
    """
    run_id, ended = "", False
    while not ended:
        try:
            for event in reopen(run_id, seen) if run_id else begin():
                pauses.succeeded()
                _require_no_error(event)
                run_id = event.get("run_id") or run_id
                seen = event.get("n", seen)
                ended = event["type"] == DONE
                yield cast(Event, event)
            error: LedgerError | None = None if ended else ServiceUnavailable("the stream ended before the run did")
        except (ServiceUnavailable, StoreUnavailable) as broken:
            error = broken
        if error is not None and not pauses.after(error):
            raise error


def _require_no_error(event: dict[str, Any]) -> None:
    """A stream that cannot go on says why in its last line; only a lost store may come back."""
    if event["type"] == "error":
        code = str(event.get("code"))
        kind = StoreUnavailable if code in ("store_unavailable", "store_unconfirmed") else Refused
        raise kind(f"the stream ended: {code}", code=code)
