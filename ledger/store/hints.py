"""Hearing hints on sharded channels with little work per message; losing some costs time, never correctness."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog
from redis.exceptions import RedisError

from ledger.errors import StoreError
from ledger.store.lane import open_connection
from ledger.store.replies import ReplyStream
from ledger.store.settings import StoreSettings
from ledger.tasks import end_tasks

log = structlog.get_logger(__name__)

RECONNECT_SECONDS = 0.5


class HintListener:
    """One connection subscribed to `channels`; `reconnected` is called whenever hints may have been missed."""

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
        connection = await open_connection(self._settings)
        stream = ReplyStream(connection)
        try:
            stream.send([["SSUBSCRIBE", *self._channels]])
            for _ in self._channels:
                await stream.read()
            self._reconnected()
            while True:
                message = await stream.read()
                if isinstance(message, list) and len(message) == 3 and message[0] == b"smessage":
                    self._heard(message[1], message[2])
        finally:
            await connection.disconnect(nowait=True)
