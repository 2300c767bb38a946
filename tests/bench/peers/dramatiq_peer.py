"""Dramatiq on its Redis broker: its worker's defaults, no results kept. `dramatiq_peer.py URL`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from protocol import Done, serve_threads, start_worker, stop_worker, tell

dramatiq.set_broker(RedisBroker(url=os.environ.get("BENCH_URL") or sys.argv[1]))


@dramatiq.actor(max_retries=0)
def noop(port: int, n: int) -> None:
    """The task."""
    tell(port, n)


def main(url: str) -> None:
    """Serves until told to end."""
    os.environ["BENCH_URL"] = url
    worker = start_worker([sys.executable, "-m", "dramatiq", "dramatiq_peer"], "is ready for action")
    done = Done()
    done.listen()

    def one(n: int) -> None:
        ran = done.event(n)
        noop.send(done.port, n)
        ran.wait()

    serve_threads(one)
    stop_worker(worker)


if __name__ == "__main__":
    main(sys.argv[1])
