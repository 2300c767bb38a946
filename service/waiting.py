"""Waking whoever waits for a run: one subscriber a process, hints only (architecture, step 8).

A waiter registers first, then reads the store, and reads again on a hint, after the subscriber connected anew, and
every second. So a lost hint costs at most a second, and nothing is ever told that was not read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

log = structlog.get_logger(__name__)

TICK_SECONDS = 1.0
POLL_SECONDS = 0.2
CONNECT_SECONDS = 2.0
MIN_BACKOFF, MAX_BACKOFF = 0.1, 2.0


class Hub:
    """Hands hints from the journals' channels to the waiters of this process.

    The subscriber starts with the first waiter, so that it lives in the process that serves, after any fork.
    """

    def __init__(self, url: str, shards: int) -> None:
        self._url = url
        self._channels = [f"ml:{{{shard:02x}}}:journal-signal" for shard in range(shards)]
        self._waiters: dict[str, set[threading.Event]] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watch(self, run_id: str) -> Iterator[threading.Event]:
        """An event that is set whenever something may have happened in the run; the waiter clears it."""
        hint = threading.Event()
        with self._lock:
            self._waiters.setdefault(run_id, set()).add(hint)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._listen, name="journal-signals", daemon=True)
                self._thread.start()
        try:
            yield hint
        finally:
            with self._lock:
                mine = self._waiters[run_id]
                mine.discard(hint)
                if not mine:
                    del self._waiters[run_id]

    @property
    def waiting(self) -> int:
        """How many runs are being waited for."""
        return len(self._waiters)

    def close(self) -> None:
        """Ends the subscriber and wakes every waiter."""
        self._closed.set()
        self._wake_all()
        if self._thread is not None:
            self._thread.join(POLL_SECONDS + CONNECT_SECONDS)

    def _wake_all(self) -> None:
        with self._lock:
            hints = [hint for mine in self._waiters.values() for hint in mine]
        for hint in hints:
            hint.set()

    def _listen(self) -> None:
        backoff = MIN_BACKOFF
        while not self._closed.is_set():
            client: Any = self._client()
            try:
                with client, client.pubsub(ignore_subscribe_messages=True) as channel:
                    channel.ssubscribe(*self._channels)
                    backoff = MIN_BACKOFF
                    self._wake_all()
                    self._deliver(channel)
            except (RedisError, OSError) as error:
                log.warning("journal_signals_lost", error=type(error).__name__, retry_in=backoff)
                self._closed.wait(backoff)
                backoff = min(backoff * 2, MAX_BACKOFF)

    def _deliver(self, channel: Any) -> None:
        while not self._closed.is_set():
            message = channel.get_message(timeout=POLL_SECONDS)
            if message is None or message["type"] != "smessage":
                continue
            run_id = message["data"].split(b" ", 1)[0].decode("ascii", "replace")
            with self._lock:
                hints = list(self._waiters.get(run_id, ()))
            for hint in hints:
                hint.set()

    def _client(self) -> Redis:
        # No retries: a reconnect must come back here, because hints were missed meanwhile.
        return Redis.from_url(
            self._url,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=CONNECT_SECONDS,
            socket_timeout=CONNECT_SECONDS,
            socket_keepalive=True,
            client_name="mutation-ledger-signals",
        )
