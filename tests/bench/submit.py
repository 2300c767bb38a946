"""B3 and B4: deliveries through `ledger.submitting`, as `Engine` submits them; a unit ends when its outcome was read.

`python -m tests.bench.submit URL CONFIG`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from ledger.adapters.rq_wake import RqWaker
from ledger.states import RunStatus
from ledger.submitting import Submitter
from tests.bench.own import Sessions, delivery, limits, opened, policy_of
from tests.bench.protocol import serve_async

SESSIONS, PER_SESSION = 1000, 10
WAIT_SECONDS = 60.0


async def main(url: str, config_file: str) -> None:
    """Serves until told to end."""
    store = await opened(url)
    submitter = Submitter(store, RqWaker(url), limits(policy_of(Path(config_file))))
    await submitter.start()
    names = Sessions(SESSIONS, "e").names(PER_SESSION)

    async def one(n: int) -> None:
        admitted = await submitter.submit(delivery(next(names), n))
        run = await submitter.ended(admitted.run, WAIT_SECONDS)
        if run.status is not RunStatus.COMPLETED:
            raise AssertionError(f"a no-op run came to {run.status}")

    await serve_async(one)
    await submitter.close()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
