"""Celery on Redis: its worker's defaults (prefork, a process a core), results ignored. `celery_peer.py URL`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from celery import Celery
from protocol import Done, serve_threads, start_worker, stop_worker, tell

app = Celery("celery_peer", broker=os.environ.get("BENCH_URL") or sys.argv[1])
app.conf.update(task_ignore_result=True, broker_pool_limit=64, broker_connection_retry_on_startup=True)


@app.task(name="noop")
def noop(port: int, n: int) -> None:
    """The task."""
    tell(port, n)


def main(url: str) -> None:
    """Serves until told to end."""
    os.environ["BENCH_URL"] = url
    command = [sys.executable, "-m", "celery", "-A", "celery_peer", "worker", "--loglevel", "INFO"]
    worker = start_worker(command, " ready.")
    done = Done()
    done.listen()

    def one(n: int) -> None:
        ran = done.event(n)
        noop.delay(done.port, n)
        ran.wait()

    serve_threads(one)
    stop_worker(worker)


if __name__ == "__main__":
    main(sys.argv[1])
