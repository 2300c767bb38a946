"""How many handlers a worker takes on: live ones in all, and synchronous ones, which hold a thread each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from ledger.attempts import Work
from ledger.handlers import HandlerOffer, HandlerStart


class Places:
    """Places are reserved before a begin is asked for, because its answer may be a handler that was started.

    Whoever was answered that nothing can begin while places were short asks again when one is free: `wait`.
    """

    def __init__(self, live: int, sync: int, sync_names: frozenset[str], replayable: frozenset[str]) -> None:
        self._live = live
        self._sync = sync
        self._sync_names = sync_names
        self._replayable = replayable
        self._for_any: deque[Callable[[], None]] = deque()
        self._for_sync: deque[Callable[[], None]] = deque()

    @property
    def free(self) -> tuple[int, int]:
        """Places that are neither taken nor reserved: in all, and for synchronous handlers."""
        return self._live, self._sync

    def offer(self, most: int) -> HandlerOffer:
        """Reserves up to `most` places of both kinds; every offer goes back through `settle`."""
        live = min(most, self._live)
        sync = min(live, self._sync) if self._sync_names else 0
        self._live -= live
        self._sync -= sync
        return HandlerOffer(live, sync, self._sync_names, self._replayable)

    def short(self, offer: HandlerOffer) -> bool:
        """Whether an offer of one place had less to give, so that a handler may have stayed queued."""
        return offer.handlers < 1 or (bool(self._sync_names) and offer.sync < 1)

    def settle(self, offer: HandlerOffer, works: Iterable[Work | None]) -> None:
        """Keeps the places of the handlers that were started and gives the rest of the offer back."""
        started = [work for work in works if isinstance(work, HandlerStart)]
        sync = sum(work.handler in self._sync_names for work in started)
        self._live += offer.handlers - len(started)
        self._sync += offer.sync - sync
        self.pass_on()

    def leave(self, name: str) -> None:
        """A handler has ended; a synchronous one only when its thread has."""
        self._live += 1
        self._sync += name in self._sync_names
        self.pass_on()

    def wait(self, offer: HandlerOffer, wake: Callable[[], None]) -> None:
        """Calls `wake` once when there is what the short `offer` lacked; at once if that is so by now."""
        lacked, waiting = (self._live, self._for_any) if offer.handlers < 1 else (self._sync, self._for_sync)
        if lacked > 0:
            wake()
        else:
            waiting.append(wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """Takes a waiter back."""
        for waiting in (self._for_any, self._for_sync):
            if wake in waiting:
                waiting.remove(wake)

    def pass_on(self) -> None:
        """Wakes one waiter of each kind: it takes the place, or gives it back, which wakes the next."""
        if self._live > 0 and self._for_any:
            self._for_any.popleft()()
        if self._live > 0 and self._sync > 0 and self._for_sync:
            self._for_sync.popleft()()
