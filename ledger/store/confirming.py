"""What was only read is told when the replicas hold it too (C-25): one counter write shared by many reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ledger.errors import StoreError, StoreUnavailable, StoreWentBack
from ledger.store.call import ScriptCall

Send = Callable[[int, float], None]


def confirm_shard(shard: int) -> ScriptCall[None]:
    """A write of no content. A WAITAOF that covers it covers all that was read on the same server before."""
    return ScriptCall.of("confirm_shard", shard, decode=lambda _: None)


def not_confirmed() -> StoreUnavailable:
    """Reads write nothing, so nothing was sent that might have happened all the same."""
    return StoreUnavailable("the replicas did not confirm in time what was read", sent=False)


@dataclass(slots=True)
class _Round:
    """One confirmation and who waits for it."""

    done: threading.Event = field(default_factory=threading.Event)
    error: StoreError | None = None


class ReadConfirms:
    """Confirmations of one server, one under way at a time: who comes meanwhile shares the next one.

    A read may only join a confirmation that was not sent yet. `send(shard, until)` writes and waits, and raises what
    the store raises.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._under_way = threading.Lock()
        self._next: _Round | None = None

    def wait(self, shard: int, until: float) -> None:
        """Returns when everything read before the call is confirmed; `until` is of `time.monotonic`.

        Raises:
            StoreUnavailable: it is not. StoreWentBack, StoreChanged: see C-27.
        """
        with self._lock:
            joined, leads = self._next, self._next is None
            if joined is None:
                joined = self._next = _Round()
        if leads:
            self._lead(joined, shard, until)
        elif not joined.done.wait(max(0.0, until - time.monotonic())):
            raise not_confirmed()
        elif joined.error is not None:
            raise joined.error

    def _lead(self, mine: _Round, shard: int, until: float) -> None:
        try:
            # Whose answer came in the same turn of the loop joins before it is sent.
            time.sleep(0)
            self._send_alone(mine, shard, until)
        except StoreWentBack as error:
            mine.error = error
            raise
        except StoreUnavailable:
            mine.error = not_confirmed()
            raise mine.error from None
        except BaseException:
            # The leader's own matter, an accepted store for instance; the others ask again.
            mine.error = not_confirmed()
            raise
        finally:
            self._leave(mine)
            mine.done.set()

    def _send_alone(self, mine: _Round, shard: int, until: float) -> None:
        if not self._under_way.acquire(timeout=max(0.0, until - time.monotonic())):
            raise not_confirmed()
        try:
            self._leave(mine)
            self._send(shard, until)
        finally:
            self._under_way.release()

    def _leave(self, mine: _Round) -> None:
        """Nobody joins from here on."""
        with self._lock:
            if self._next is mine:
                self._next = None
