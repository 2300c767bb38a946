"""The floor: two bare scripts and a WAITAOF after each, on a redis.asyncio connection per coroutine.

`python -m tests.bench.floor URL`. It keeps no rule and remembers nothing but an intent and an outcome per unit.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from redis.asyncio import Redis

from tests.bench.protocol import serve_async

CONNECTIONS = 64
INTENT = "redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) return 1"
OUTCOME = "redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) redis.call('XADD', KEYS[2], '*', 'r', ARGV[2]) return 1"
VALUE = "x" * 200


async def main(url: str) -> None:
    """Serves until told to end."""
    clients = [Redis.from_url(url, single_connection_client=True) for _ in range(CONNECTIONS)]
    scripts = [(client.register_script(INTENT), client.register_script(OUTCOME)) for client in clients]
    free: asyncio.LifoQueue[int] = asyncio.LifoQueue()
    for place in range(CONNECTIONS):
        free.put_nowait(place)

    async def one(n: int) -> None:
        place = free.get_nowait()
        client: Any = clients[place]
        intent, outcome = scripts[place]
        await intent(keys=[f"floor:{n % 1000}"], args=[n, VALUE])
        await client.execute_command("WAITAOF", 1, 0, 5000)
        await outcome(keys=[f"floor:{n % 1000}", "floor:outcomes"], args=[n, VALUE])
        await client.execute_command("WAITAOF", 1, 0, 5000)
        free.put_nowait(place)

    await serve_async(one)
    for client in clients:
        await client.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
