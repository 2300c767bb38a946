"""Waking whoever waits for a run: one subscriber a process, hints only (architecture, step 8).

A waiter registers first, then reads the store, and reads again on a hint, after the subscriber connected anew, and
every second. So a lost hint costs at most a second, and nothing is ever told that was not read.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

import structlog
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from ledger.run_hints import RunHints

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
        self._runs = RunHints(threading.Event)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, run_id: str) -> AbstractContextManager[threading.Event]:
        """An event that is set whenever something may have happened in the run; the waiter clears it."""
        self._begin()
        return self._runs.watch(run_id)

    def watch_end(self, run_id: str) -> AbstractContextManager[threading.Event]:
        """The same for the run's end alone, also when that was heard of shortly before."""
        self._begin()
        return self._runs.watch_end(run_id)

    def _begin(self) -> None:
        if self._thread is not None:
            return
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._listen, name="journal-signals", daemon=True)
                self._thread.start()

    @property
    def waiting(self) -> int:
        """How many runs are being waited for."""
        return self._runs.waiting

    def close(self) -> None:
        """Ends the subscriber and wakes every waiter."""
        self._closed.set()
        self._runs.all_again()
        if self._thread is not None:
            self._thread.join(POLL_SECONDS + CONNECT_SECONDS)

    def _listen(self) -> None:
        backoff = MIN_BACKOFF
        while not self._closed.is_set():
            client: Any = self._client()
            try:
                with client, client.pubsub(ignore_subscribe_messages=True) as channel:
                    channel.ssubscribe(*self._channels)
                    backoff = MIN_BACKOFF
                    self._runs.all_again()
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
            self._runs.heard(message["data"])

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
