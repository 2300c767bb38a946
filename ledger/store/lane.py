"""One pinned connection of an event loop: opened, its server met and verified, a batch at a time exchanged on it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from ledger.durability import COMMANDS, Report, facts_from, judge, require
from ledger.errors import StoreUnavailable, Unconfirmed
from ledger.faultpoints import reach
from ledger.store.connections import RECHECK_SECONDS, run_id_in
from ledger.store.dialing import dial_async
from ledger.store.placement import Node
from ledger.store.replies import Command, ReplyStream
from ledger.store.scripts import Script
from ledger.store.settings import StoreSettings
from ledger.store.wire import is_known_already, translate

Exchange = Callable[[Sequence[Command]], Awaitable[list[Any]]]
Met = Callable[[Exchange], Awaitable[None]]


class Acquaintance:
    """What all lanes of a process know of one server: which life of it was verified, and when (C-21)."""

    def __init__(self, settings: StoreSettings, node: Node | None, met: Met) -> None:
        """`met` is called with each life of the server that was not met before, and may raise."""
        self.settings = settings
        self.node = node
        self.met = met
        self.report: Report | None = None
        self.run_id = ""
        self.checked_at = -math.inf
        # One lane looks, every other waits for what it finds: nothing is sent on settings nobody has seen.
        self.looking = asyncio.Lock()

    @property
    def is_due(self) -> bool:
        """Whether the settings must be looked at again."""
        return time.monotonic() - self.checked_at > RECHECK_SECONDS


class Lane:
    """A connection that is only ever used by one batch at a time, so that a WAITAOF covers what went before it."""

    def __init__(self, known: Acquaintance) -> None:
        self._known = known
        self._connection: Any = None
        self._stream: ReplyStream | None = None
        self._loaded: set[str] = set()

    async def ready(self) -> None:
        """Connects if need be, and sees to it that the server was verified.

        Raises:
            StoreUnavailable, StoreUnsafe, ConfigError: as `SyncStore.open`.
        """
        known = self._known
        try:
            if self._stream is None or not self._stream.is_open:
                await self.drop()
                self._connection = await dial_async(known.settings, known.node)
                self._stream = ReplyStream(self._connection)
                self._loaded.clear()
                await self._meet()
            if known.is_due:
                async with known.looking:
                    if known.is_due:
                        await self._verify()
        except BaseException:
            # A connection that was not met in full must not serve the next batch as if it had been.
            await self.drop()
            raise

    async def load(self, scripts: Sequence[Script]) -> None:
        """Makes sure that the server holds these scripts."""
        missing = {script.sha: script.loading for script in scripts if script.sha not in self._loaded}
        if missing:
            for reply in await self.exchange(list(missing.values())):
                if isinstance(reply, ResponseError) and not is_known_already(reply):
                    raise translate(reply)
            self._loaded.update(missing)

    def forget(self, script: Script) -> None:
        """The server says that it does not hold this script any more."""
        self._loaded.discard(script.sha)

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Sends all commands in one write and reads every reply; an error reply is returned, not raised.

        Raises:
            StoreUnavailable: nothing was sent. Unconfirmed: sent, and not every reply came.
        """
        sent = False
        try:
            stream = _opened(self._stream)
            reach("store.sending")
            sent = True
            stream.send(commands)
            reach("store.sent")
            async with asyncio.timeout(self._known.settings.answer_seconds):
                replies = [await stream.read() for _ in commands]
        except (RedisError, OSError, TimeoutError) as error:
            await self.drop()
            kind = Unconfirmed if sent else StoreUnavailable
            raise kind(f"the store did not answer ({type(error).__name__})", sent=sent) from None
        except BaseException:
            await self.drop()
            raise
        reach("store.answered")
        return replies

    async def drop(self) -> None:
        """Closes the connection without waiting for anything."""
        connection, self._connection, self._stream = self._connection, None, None
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def _meet(self) -> None:
        """A server life not met before has its settings verified first (C-21)."""
        known = self._known
        info = (await self.exchange([["INFO", "server"]]))[0]
        if isinstance(info, ResponseError):
            raise translate(info)
        run_id = run_id_in(info)
        async with known.looking:
            if run_id != known.run_id:
                await self._verify()
                await known.met(self.exchange)
                known.run_id = run_id

    async def _verify(self) -> None:
        known = self._known
        # Until it passes, nothing goes out: also a connection made meanwhile starts with this check (C-21).
        known.checked_at = -math.inf
        facts = facts_from(await self.exchange(COMMANDS))
        known.report = judge(facts, known.settings.redis)
        require(facts, known.settings.redis)
        known.checked_at = time.monotonic()


def _opened(stream: ReplyStream | None) -> ReplyStream:
    if stream is None or not stream.is_open:
        raise RedisConnectionError("the connection was closed")
    return stream
