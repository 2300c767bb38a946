"""The thin layer over RQ: a worker that runs drain jobs in this process; nothing else here knows RQ.

A forked work-horse could not reach the loop, so this is a SimpleWorker. Jobs return at once, so RQ's heartbeats,
registries and maintenance need no help.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

os.environ.setdefault("RQ_KEY_PREFIX", "{rq}")  # one slot, so that RQ works on a cluster; must precede `import rq`

from rq import Queue, SimpleWorker
from rq.exceptions import StopRequested
from rq.serializers import JSONSerializer

from ledger.adapters.rq_wake import QUEUE, RQ_KEY
from ledger.store.dialing import redis_of_key

KICKS = 5
KICK_SECONDS = 0.1


class DrainWorker(SimpleWorker):
    """Runs drain jobs until told to stop. Signals are the process's own business (`workers.process`)."""

    # After an outage RQ would wait up to a minute; the sweep covers that time, but a short wait is kinder.
    max_connection_wait_time = 2.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_job = False

    def _install_signal_handlers(self) -> None:
        """None: RQ's own write to Redis inside the handler and swallow a second SIGTERM."""

    def procline(self, message: str) -> None:
        """None: the process title is `mutation-ledger worker`."""

    def execute_job(self, job: Any, queue: Any) -> None:
        """Runs one drain job here."""
        self._in_job = True
        try:
            super().execute_job(job, queue)
        finally:
            self._in_job = False

    def stop_from_signal(self) -> None:
        """Called in a signal handler of the main thread: ends the work loop, after a job that is running."""
        self._stop_requested = True
        if not self._in_job:
            raise StopRequested


def make_worker(url: str) -> DrainWorker:
    """A worker on the `drain` queue of the store at `url`; RQ sets its own socket timeout above its block time.

    Raises StoreUnavailable when nobody knows which server holds RQ's keys.
    """
    connection = redis_of_key(url, RQ_KEY, socket_connect_timeout=2.0)
    queue = Queue(QUEUE, connection=connection, serializer=JSONSerializer)
    return DrainWorker([queue], connection=connection, serializer=JSONSerializer, log_job_description=False)


def on_signals(
    *, first_stop: Callable[[], None], second_stop: Callable[[], None], interrupted: Callable[[], None]
) -> None:
    """Calls `first_stop` at the first SIGTERM or SIGINT and `second_stop` at the next (C-34); see the next function."""
    seen = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal seen
        if seen:
            second_stop()
            return
        seen = True
        first_stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGUSR1, lambda _number, _frame: interrupted())
    _kick_main_thread_on(frozenset({signal.SIGTERM, signal.SIGINT}))


def _kick_main_thread_on(numbers: frozenset[int]) -> None:
    """Takes the main thread out of a blocking call when such a signal has come, so that it runs the handler.

    The system may hand a signal to any thread, as it does when a stopped process is continued; Python's handler then
    waits for the main thread, which RQ may have put into a read of minutes.
    """
    heard, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    signal.signal(signal.SIGUSR2, lambda _number, _frame: None)

    def kick() -> None:
        while True:
            if not numbers.isdisjoint(os.read(heard, 64)):
                # More than once: the first may come in the moment before the main thread begins to block.
                for _ in range(KICKS):
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR2)
                    time.sleep(KICK_SECONDS)

    threading.Thread(target=kick, name="signal-kick", daemon=True).start()


def interrupt_main_thread() -> None:
    """Makes the main thread run `interrupted`, also out of a blocking read. From any thread."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)


__all__ = ["DrainWorker", "StopRequested", "interrupt_main_thread", "make_worker", "on_signals"]
