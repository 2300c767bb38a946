"""arq: one worker with 64 jobs at once and a short poll, no results kept. `arq_peer.py URL [worker]`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker
from protocol import Done, serve_async, start_worker, stop_worker, tell

MAX_JOBS = 64
POLL_SECONDS = 0.01


async def noop(_: dict[str, Any], port: int, n: int) -> None:
    """The task."""
    tell(port, n)


def work(url: str) -> None:
    """The worker process."""
    settings = RedisSettings.from_dsn(url)
    print("worker ready", flush=True)
    Worker([noop], redis_settings=settings, max_jobs=MAX_JOBS, poll_delay=POLL_SECONDS, keep_result=0).run()


async def main(url: str) -> None:
    """Serves until told to end."""
    worker = start_worker([sys.executable, __file__, url, "worker"], "worker ready")
    done = Done()
    done.listen_in_loop()
    pool = await create_pool(RedisSettings.from_dsn(url))

    async def one(n: int) -> None:
        ran = done.future(n)
        await pool.enqueue_job("noop", done.port, n)
        await ran

    await serve_async(one)
    await pool.aclose()
    stop_worker(worker)


if __name__ == "__main__":
    work(sys.argv[1]) if sys.argv[2:] else asyncio.run(main(sys.argv[1]))
