"""RQ: one job a unit, a SimpleWorker, no results kept. `rq_peer.py URL [worker]`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from protocol import Done, serve_threads, start_worker, stop_worker
from redis import Redis
from rq import Queue, SimpleWorker

QUEUE = "bench"


def work(url: str) -> None:
    """The worker process."""
    connection = Redis.from_url(url)
    print("worker ready", flush=True)
    SimpleWorker([Queue(QUEUE, connection=connection)], connection=connection).work(logging_level="WARNING")


def main(url: str) -> None:
    """Serves until told to end."""
    worker = start_worker([sys.executable, __file__, url, "worker"], "worker ready")
    done = Done()
    done.listen()
    queue = Queue(QUEUE, connection=Redis.from_url(url))

    def one(n: int) -> None:
        ran = done.event(n)
        queue.enqueue("protocol.tell", done.port, n, result_ttl=0)
        ran.wait()

    serve_threads(one)
    stop_worker(worker)


if __name__ == "__main__":
    work(sys.argv[1]) if sys.argv[2:] else main(sys.argv[1])
