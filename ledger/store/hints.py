"""Hearing hints on sharded channels with little work per message; losing some costs time, never correctness."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from ledger.errors import StoreError
from ledger.store.dialing import dial_async, place_async
from ledger.store.placement import Node
from ledger.store.replies import ReplyStream
from ledger.store.settings import StoreSettings
from ledger.tasks import end_tasks

log = structlog.get_logger(__name__)

RECONNECT_SECONDS = 0.5
SILENCE_SECONDS = 5.0


class HintListener:
    """One connection a server, subscribed to `channels`; `reconnected` is called when hints may have been missed."""

    def __init__(
        self,
        settings: StoreSettings,
        channels: Sequence[str],
        *,
        heard: Callable[[bytes, bytes], None],
        reconnected: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._channels = channels
        self._heard = heard
        self._reconnected = reconnected
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to listen in the running loop."""
        if self._task is None:
            self._task = asyncio.create_task(self.run(), name="hints")

    async def close(self) -> None:
        """Stops listening."""
        if self._task is not None:
            await end_tasks([self._task])
            self._task = None

    async def run(self) -> None:
        """Listens until cancelled."""
        while True:
            try:
                await self._listen()
            except (RedisError, OSError, StoreError) as error:
                log.warning("hints_lost", error=type(error).__name__)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _listen(self) -> None:
        """Returns, or raises, when the connection to any of the servers is lost."""
        placement = await place_async(self._settings)
        by_node: dict[Node | None, list[str]] = {}
        for channel in self._channels:
            by_node.setdefault(placement.of_key(channel), []).append(channel)
        tasks = [asyncio.create_task(self._follow(node, channels)) for node, channels in by_node.items()]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await end_tasks(tasks)

    async def _follow(self, node: Node | None, channels: Sequence[str]) -> None:
        connection = await dial_async(self._settings, node)
        stream = ReplyStream(connection)
        try:
            # One by one, because channels of two slots in one command are refused on a cluster.
            stream.send([["SSUBSCRIBE", channel] for channel in channels])
            subscribed = 0
            while True:
                message = await _next(stream)
                if isinstance(message, ResponseError):
                    raise message
                kind = message[0] if isinstance(message, list) else b""
                if kind == b"smessage":
                    self._heard(message[1], message[2])
                elif kind == b"ssubscribe":
                    subscribed += 1
                    if subscribed == len(channels):
                        self._reconnected()
                elif kind == b"sunsubscribe":
                    # The slot went to another server.
                    return
        finally:
            await connection.disconnect(nowait=True)


async def _next(stream: ReplyStream) -> Any:
    """The next message. Raises RedisConnectionError when a silent server does not answer a question either."""
    try:
        async with asyncio.timeout(SILENCE_SECONDS):
            return await stream.read()
    except TimeoutError:
        # A connection that died without a word is as silent as a quiet store: only an answer tells.
        stream.send([["PING"]])
    try:
        async with asyncio.timeout(SILENCE_SECONDS):
            return await stream.read()
    except TimeoutError:
        raise RedisConnectionError("no answer on the connection for hints") from None
