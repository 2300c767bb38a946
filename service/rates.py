"""Requests a second of each token, counted in the store for all front doors together (C-71)."""

from __future__ import annotations

import math
import time

import structlog
from limits import RateLimitItem, RateLimitItemPerSecond
from limits.errors import StorageError
from limits.storage import RedisStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from ledger.config import RedisConfig
from ledger.errors import LedgerError, StoreUnavailable
from ledger.store import StoreSettings
from ledger.store.dialing import place, plain_redis
from ledger.tokens import Principal

log = structlog.get_logger(__name__)

KEY_PREFIX = "ml-rate:{rate}"
"""One slot, so that on a cluster one server holds all counts."""
SOCKET_SECONDS = 1.0


class RateLimited(LedgerError):
    """The token asked more often than it may; nothing was done. `extra["retry_after"]` is in whole seconds."""

    code = "rate_limited"
    retryable = True


class RateLimits:
    """At most `per_second` requests of each token; None sets no limit. Fractions are counted over longer windows."""

    def __init__(self, url: str, per_second: float | None) -> None:
        """Asks no store yet; `url` is any that the store itself can have. Raises ConfigError: it cannot be used."""
        # Counts are never waited for until they are on disk.
        self._settings = StoreSettings(RedisConfig(url=url), wait_seconds=0.0, connect_seconds=SOCKET_SECONDS)
        self._item = None if per_second is None else _item(per_second)
        self._limiter: SlidingWindowCounterRateLimiter | None = None
        if self._item is not None:
            self._settings.connection_kwargs()

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
        except (StorageError, StoreUnavailable) as error:
            # Perhaps another server holds the counts by now.
            self._limiter = None
            cause = error.storage_error if isinstance(error, StorageError) else error
            log.warning("requests_not_counted", error=type(cause).__name__)
            return
        wait = min(max(1, math.ceil(ends - time.time())), self._item.get_expiry())
        raise RateLimited(f"this token may send {self._item}", retry_after=wait)

    def _connected(self) -> SlidingWindowCounterRateLimiter:
        limiter = self._limiter
        if limiter is None:
            # `limits` would know no TLS with Sentinel or a cluster, no login of the store apart from Sentinel's, and
            # would ask a cluster while it is being made. So it is given a connection to the right server.
            node = place(self._settings).of_key(KEY_PREFIX)
            timeouts = {"socket_timeout": SOCKET_SECONDS, "socket_connect_timeout": SOCKET_SECONDS}
            client = plain_redis(self._settings, node, **timeouts)
            storage = RedisStorage(
                "redis://", connection_pool=client.connection_pool, key_prefix=KEY_PREFIX, wrap_exceptions=True
            )
            limiter = self._limiter = SlidingWindowCounterRateLimiter(storage)
        return limiter


def _item(per_second: float) -> RateLimitItem:
    if per_second >= 1:
        return RateLimitItemPerSecond(int(per_second))
    return RateLimitItemPerSecond(1, math.ceil(1 / per_second))
