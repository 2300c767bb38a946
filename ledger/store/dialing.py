"""Opening connections to the store's servers, and asking where its shards are, for threads and for event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import redis.asyncio.connection as aio
import redis.connection as sync
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from ledger.config import RedisConfig
from ledger.errors import StoreUnavailable
from ledger.store.placement import Ask, Node, Placement, locate
from ledger.store.settings import StoreSettings


def dial(settings: StoreSettings, node: Node | None, *, bare: bool = False) -> Any:
    """A connected redis-py connection to `node`, or to the server that the URL names. Raises StoreUnavailable."""
    connection = settings.connection_class(sync)(**settings.connection_kwargs(node, bare=bare))
    try:
        connection.connect()
    except (RedisError, OSError) as error:
        raise _unreachable(error) from None
    return connection


async def dial_async(settings: StoreSettings, node: Node | None, *, bare: bool = False) -> Any:
    """The same of redis.asyncio, after its handshake. Raises StoreUnavailable."""
    connection = settings.connection_class(aio)(**settings.connection_kwargs(node, bare=bare))
    try:
        await connection.connect()
    except (RedisError, OSError, TimeoutError) as error:
        raise _unreachable(error) from None
    except BaseException:
        # Cancelled in its handshake: nobody else would close it.
        await connection.disconnect(nowait=True)
        raise
    return connection


def place(settings: StoreSettings, known: Sequence[Node] = ()) -> Placement:
    """Where the shards are now. Raises StoreUnavailable when nobody knows."""
    steps = locate(settings.address, known)
    try:
        ask = next(steps)
        while True:
            ask = steps.send(_answer(settings, ask))
    except StopIteration as found:
        placement: Placement = found.value
        return placement


async def place_async(settings: StoreSettings, known: Sequence[Node] = ()) -> Placement:
    """`place` for an event loop."""
    steps = locate(settings.address, known)
    try:
        ask = next(steps)
        while True:
            ask = steps.send(await _answer_async(settings, ask))
    except StopIteration as found:
        placement: Placement = found.value
        return placement


def redis_of_key(url: str, key: str, **options: Any) -> Redis:
    """A client to the one server that holds `key` now: for libraries that know no cluster. Raises StoreUnavailable."""
    settings = StoreSettings(RedisConfig(url=url))
    return plain_redis(settings, place(settings).of_key(key), **options)


def plain_redis(settings: StoreSettings, node: Node | None, **options: Any) -> Redis:
    """A redis-py client to one server, without retries."""
    client: Redis = Redis.from_url(settings.address.base, retry=Retry(NoBackoff(), 0), **options)
    if node is not None:
        client.connection_pool.connection_kwargs.update(host=node[0], port=node[1])
    return client


def _answer(settings: StoreSettings, ask: Ask) -> Any:
    try:
        connection = dial(settings, ask.node, bare=ask.bare)
    except StoreUnavailable:
        return None
    try:
        connection.send_packed_command(connection.pack_commands([ask.command]), check_health=False)
        return connection.read_response(disable_decoding=True)
    except (RedisError, OSError):
        return None
    finally:
        connection.disconnect()


async def _answer_async(settings: StoreSettings, ask: Ask) -> Any:
    try:
        connection = await dial_async(settings, ask.node, bare=ask.bare)
    except StoreUnavailable:
        return None
    try:
        async with asyncio.timeout(settings.connect_seconds):
            await connection.send_packed_command(connection.pack_commands([ask.command]), check_health=False)
            return await connection.read_response(disable_decoding=True)
    except (RedisError, OSError, TimeoutError):
        return None
    finally:
        await connection.disconnect(nowait=True)


def _unreachable(error: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"the store cannot be reached ({type(error).__name__})", sent=False)
