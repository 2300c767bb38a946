"""Requests a second of each token, counted in the store for all front doors together (C-71)."""

from __future__ import annotations

import math
import threading
import time

import structlog
from limits import RateLimitItem, RateLimitItemPerSecond
from limits.errors import StorageError
from limits.storage import storage_from_string
from limits.strategies import SlidingWindowCounterRateLimiter

from ledger.errors import LedgerError
from ledger.tokens import Principal

log = structlog.get_logger(__name__)

KEY_PREFIX = "ml-rate"
SOCKET_SECONDS = 1.0


class RateLimited(LedgerError):
    """The token asked more often than it may; nothing was done. `extra["retry_after"]` is in whole seconds."""

    code = "rate_limited"
    retryable = True


class RateLimits:
    """At most `per_second` requests of each token; None sets no limit. Fractions are counted over longer windows."""

    def __init__(self, url: str, per_second: float | None) -> None:
        self._url = url.replace("unix://", "redis+unix://", 1) if url.startswith("unix://") else url
        self._item = None if per_second is None else _item(per_second)
        self._limiter: SlidingWindowCounterRateLimiter | None = None
        self._lock = threading.Lock()

    def check(self, principal: Principal) -> None:
        """Counts one request.

        A store that cannot count lets it pass: what needs the store says by itself that it is away (C-26).

        Raises:
            RateLimited: the token has none left in this window.
        """
        if self._item is None:
            return
        try:
            limiter = self._connected()
            if limiter.hit(self._item, principal.tenant, principal.name):
                return
            ends = limiter.get_window_stats(self._item, principal.tenant, principal.name).reset_time
        except StorageError as error:
            log.warning("requests_not_counted", error=type(error.storage_error).__name__)
            return
        wait = min(max(1, math.ceil(ends - time.time())), self._item.get_expiry())
        raise RateLimited(f"this token may send {self._item}", retry_after=wait)

    def _connected(self) -> SlidingWindowCounterRateLimiter:
        with self._lock:
            if self._limiter is None:
                storage = storage_from_string(
                    self._url,
                    wrap_exceptions=True,
                    key_prefix=KEY_PREFIX,
                    socket_timeout=SOCKET_SECONDS,
                    socket_connect_timeout=SOCKET_SECONDS,
                )
                self._limiter = SlidingWindowCounterRateLimiter(storage)
            return self._limiter


def _item(per_second: float) -> RateLimitItem:
    if per_second >= 1:
        return RateLimitItemPerSecond(int(per_second))
    return RateLimitItemPerSecond(1, math.ceil(1 / per_second))
