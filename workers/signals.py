"""Hearing hints: sessions that became ready, and news of owned ones. Never needed for correctness."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

log = structlog.get_logger(__name__)

RECONNECT_SECONDS = 0.5


class SignalListener:
    """Subscribes to `ml:{s}:signal` of all shards on one connection; asks for everything after a reconnect."""

    def __init__(
        self,
        url: str,
        shards: int,
        *,
        ready: Callable[[int], None],
        news: Callable[[str], None],
        reconnected: Callable[[], None],
    ) -> None:
        self._url = url
        self._channels = {f"ml:{{{shard:02x}}}:signal": shard for shard in range(shards)}
        self._ready = ready
        self._news = news
        self._reconnected = reconnected

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            client = Redis.from_url(
                self._url,
                retry=Retry(NoBackoff(), 0),
                socket_timeout=10.0,
                socket_connect_timeout=2.0,
                client_name="mutation-ledger-signals",
            )
            try:
                async with client, client.pubsub() as pubsub:
                    await pubsub.ssubscribe(*self._channels)
                    self._reconnected()
                    await self._listen(pubsub)
            except (RedisError, OSError) as error:
                log.warning("signals_lost", error=type(error).__name__)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _listen(self, pubsub: PubSub) -> None:
        while True:
            message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=5.0)
            if message is None or message["type"] != "smessage":
                continue
            word = message["data"].decode()
            if word == "r":
                self._ready(self._channels[message["channel"].decode()])
            elif word.startswith("n"):
                self._news(word[1:])
