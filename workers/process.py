"""One worker process: the loop in its thread, RQ in the main thread, and how both stop (C-34)."""

from __future__ import annotations

import os
import threading
import time

import structlog
from redis.exceptions import RedisError

from ledger.adapters.rq_wake import RqWaker
from ledger.config import Config
from ledger.errors import StoreError
from ledger.plugins import load_plugins
from workers import jobs
from workers.rq_worker import DrainWorker, StopRequested, interrupt_main_thread, make_worker, on_signals
from workers.runtime import WorkerRuntime
from workers.tools.native import NativeTools

log = structlog.get_logger(__name__)

RQ_RETRY_SECONDS = 1.0
STOPPED_AT_ONCE = 143
LEAVE_SECONDS = 5.0


def run_worker(config: Config, url: str) -> int:
    """Runs until a signal; returns the exit code: 0 after a warm stop, 1 when the loop failed.

    Raises:
        StoreError, ConfigError: at start, one line.
    """
    plugins = load_plugins(config)
    native = NativeTools(cancel_drain_seconds=config.timing.cancel_drain_seconds)
    for name, handler in plugins.native_tools.items():
        native.register(name, handler)
    waker = RqWaker(url)
    runtime = WorkerRuntime(
        config,
        plugins.policy,
        native,
        waker,
        handlers=plugins.turn_handlers,
        readbacks=plugins.readbacks,
        ended=_leave_soon,
    )
    jobs.bind(runtime.look, waker.pass_on)
    stop = _Stop(runtime)
    on_signals(first_stop=stop.warm, second_stop=stop.now, interrupted=stop.end_jobs)
    runtime.start()
    log.info("worker_started", pid=os.getpid(), concurrency=config.workers.concurrency)
    _serve_jobs(url, runtime, stop)
    runtime.drain()
    while not runtime.join(timeout=0.5):
        pass
    log.info("worker_stopped", failed=runtime.failed)
    return 1 if runtime.failed else 0


def _leave_soon(failed: bool) -> None:
    """Without its loop this process is of no use, and RQ may hang for minutes on a store that does not answer."""
    if failed:
        interrupt_main_thread()
    leave = threading.Timer(LEAVE_SECONDS, os._exit, [int(failed)])
    leave.daemon = True
    leave.start()


class _Stop:
    """What the signal handlers do: the first drains, the second ends the process; the ledger stays right."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        self.asked = False
        self.worker: DrainWorker | None = None
        self._runtime = runtime

    def warm(self) -> None:
        """First signal: claim nothing new, finish what is in flight."""
        self.asked = True
        self._runtime.drain()
        self.end_jobs()

    def end_jobs(self) -> None:
        """Takes the main thread out of RQ; alone when the loop has failed."""
        if self.worker is not None:
            self.worker.stop_from_signal()

    def now(self) -> None:
        """Second signal."""
        os._exit(STOPPED_AT_ONCE)


def _serve_jobs(url: str, runtime: WorkerRuntime, stop: _Stop) -> None:
    """RQ until asked to stop or the loop ends. RQ gives up on some store errors; it is then started anew."""
    while not stop.asked and runtime.alive:
        try:
            _work(make_worker(url), stop)
        except StopRequested:
            # The signal came while RQ was starting or tidying up.
            log.info("rq_interrupted")
        except (RedisError, OSError, StoreError) as error:
            log.warning("rq_lost", error=type(error).__name__)
        if not stop.asked and runtime.alive:
            time.sleep(RQ_RETRY_SECONDS)


def _work(worker: DrainWorker, stop: _Stop) -> None:
    try:
        stop.worker = worker
        if not stop.asked:
            worker.work(logging_level="WARNING")
    finally:
        stop.worker = None
