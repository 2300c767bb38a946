"""B3 and B4: deliveries through the host `Engine`; a unit ends when its outcome was read.

`python -m tests.bench.submit URL CONFIG`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from ledger import Engine, IncomingMessage
from ledger.config import load
from tests.bench.own import AGENT, TENANT, USER, Sessions
from tests.bench.plugin import TOOL
from tests.bench.protocol import serve_async

SESSIONS, PER_SESSION = 1000, 10
WAIT_SECONDS = 60.0


async def main(url: str, config_file: str) -> None:
    """Serves until told to end."""
    config = load(Path(config_file))
    config = config.model_copy(update={"redis": config.redis.model_copy(update={"url": url})})
    engine = Engine(config, tenant=TENANT, principal="agent", agent=AGENT, data_dir=Path(config_file).parent / "data")
    names = Sessions(SESSIONS, "e").names(PER_SESSION)

    async def one(n: int) -> None:
        call = (TOOL, {"n": n, "note": "a few words for the tool"})
        message = IncomingMessage(next(names), user=USER, delivery_id=f"d{n}", calls=[call])
        result = await engine.handle_async(message, wait_seconds=WAIT_SECONDS)
        if result.status != "completed":
            raise AssertionError(f"a no-op run came to {result.status}")

    with engine:
        await serve_async(one)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
