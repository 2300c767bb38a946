"""Hearing hints: sessions that became ready, and news of owned ones. Never needed for correctness."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

log = structlog.get_logger(__name__)

RECONNECT_SECONDS = 0.5
SILENCE_SECONDS = 5.0


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
                    await self._listen(pubsub)
            except (RedisError, OSError) as error:
                log.warning("signals_lost", error=type(error).__name__)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _listen(self, pubsub: PubSub) -> None:
        missing = len(self._channels)
        silent = False
        while True:
            message = await pubsub.get_message(timeout=SILENCE_SECONDS)
            if message is None:
                # A connection that died without a word is as silent as a quiet store: only an answer tells.
                if silent:
                    raise RedisConnectionError("no answer on the signal connection")
                silent = True
                await pubsub.ping()
                continue
            silent = False
            if message["type"] == "ssubscribe":
                missing -= 1
                # Only from the last channel on is nothing missed; what came before is asked for now.
                if missing == 0:
                    self._reconnected()
            elif message["type"] == "smessage":
                self._hear(message)

    def _hear(self, message: dict[str, Any]) -> None:
        word = message["data"].decode()
        if word == "r":
            self._ready(self._channels[message["channel"].decode()])
        elif word.startswith("n"):
            self._news(word[1:])
