"""Waking whoever waits for a run: one subscriber a process, hints only (architecture, step 8).

A waiter registers first, then reads the store, and reads again on a hint, after the subscriber connected anew, and
every second. So a lost hint costs at most a second, and nothing is ever told that was not read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import structlog
from redis.exceptions import RedisError, ResponseError

from ledger.errors import StoreError
from ledger.run_hints import RunHints
from ledger.store import StoreSettings
from ledger.store.dialing import dial, place
from ledger.store.placement import Node
from ledger.store.replies import BlockingReplies

log = structlog.get_logger(__name__)

TICK_SECONDS = 1.0
POLL_SECONDS = 0.2
SILENCE_SECONDS = 5.0
MIN_BACKOFF, MAX_BACKOFF = 0.1, 2.0


class Hub:
    """Hands hints from the journals' channels to the waiters of this process.

    The subscriber starts with the first waiter, so that it lives in the process that serves, after any fork.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = replace(settings, client_name="mutation-ledger-signals")
        self._channels = [f"ml:{{{shard:02x}}}:journal-signal" for shard in range(settings.redis.shards)]
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
            self._thread.join(POLL_SECONDS + self._settings.connect_seconds)

    def _listen(self) -> None:
        backoff = MIN_BACKOFF
        while not self._closed.is_set():
            began = time.monotonic()
            try:
                self._follow_all()
            except StoreError as error:
                log.warning("journal_signals_lost", code=error.code)
            backoff = MIN_BACKOFF if time.monotonic() - began > MAX_BACKOFF else min(backoff * 2, MAX_BACKOFF)
            self._closed.wait(backoff)

    def _follow_all(self) -> None:
        """Follows every server that holds shards, until one is lost or the hub is closed. Raises StoreError."""
        (first, *others) = place(self._settings).shards_by_node(len(self._channels)).items()
        lost = threading.Event()
        threads = [threading.Thread(target=self._follow, args=(*one, lost), daemon=True) for one in others]
        for thread in threads:
            thread.start()
        self._follow(*first, lost)
        for thread in threads:
            thread.join()

    def _follow(self, node: Node | None, shards: Sequence[int], lost: threading.Event) -> None:
        try:
            stream = BlockingReplies(dial(self._settings, node))
            try:
                # One by one, because channels of two slots in one command are refused on a cluster.
                stream.send([["SSUBSCRIBE", self._channels[shard]] for shard in shards])
                self._deliver(stream, len(shards), lost)
            finally:
                stream.close()
        except (RedisError, OSError, StoreError) as error:
            log.warning("journal_signals_lost", error=type(error).__name__)
        finally:
            lost.set()

    def _deliver(self, stream: BlockingReplies, unanswered: int, lost: threading.Event) -> None:
        """Hands hints on until the connection is lost; raises then, or when it is silent and answers nothing either."""
        heard_at, asked = time.monotonic(), False
        while not (self._closed.is_set() or lost.is_set()):
            try:
                message = stream.read(time.monotonic() + POLL_SECONDS)
            except TimeoutError:
                if time.monotonic() - heard_at > SILENCE_SECONDS:
                    if asked:
                        raise
                    # A connection that died without a word is as silent as a quiet store: only an answer tells.
                    stream.send([["PING"]])
                    heard_at, asked = time.monotonic(), True
                continue
            heard_at, asked = time.monotonic(), False
            if isinstance(message, ResponseError):
                raise message
            kind = message[0] if isinstance(message, list) else b""
            if kind == b"smessage":
                self._runs.heard(message[2])
            elif kind == b"ssubscribe":
                unanswered -= 1
                if unanswered == 0:
                    self._runs.all_again()
            elif kind == b"sunsubscribe":
                # The slot went to another server.
                return
