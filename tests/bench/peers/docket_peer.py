"""pydocket: one worker with 64 tasks at once. `docket_peer.py URL [worker]`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from docket import Docket, Worker
from protocol import Done, serve_async, start_worker, stop_worker, tell

NAME = "bench"
CONCURRENCY = 64


async def noop(port: int, n: int) -> None:
    """The task."""
    tell(port, n)


async def work(url: str) -> None:
    """The worker process."""
    async with Docket(name=NAME, url=url) as docket:
        docket.register(noop)
        async with Worker(docket, concurrency=CONCURRENCY) as worker:
            print("worker ready", flush=True)
            await worker.run_forever()


async def main(url: str) -> None:
    """Serves until told to end."""
    worker = start_worker([sys.executable, __file__, url, "worker"], "worker ready")
    done = Done()
    done.listen_in_loop()
    async with Docket(name=NAME, url=url) as docket:
        docket.register(noop)

        async def one(n: int) -> None:
            ran = done.future(n)
            await docket.add(noop)(done.port, n)
            await ran

        await serve_async(one)
    stop_worker(worker)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]) if sys.argv[2:] else main(sys.argv[1]))
