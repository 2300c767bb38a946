"""The store for one event loop: calls of a tick share one write, one fsync and one WAITAOF."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeVar

from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from ledger.durability import COMMANDS, Report, facts_from, judge, require
from ledger.errors import StoreUnavailable, Unconfirmed
from ledger.store.call import ScriptCall
from ledger.store.opening import adopt_all, adopt_first, init_commands
from ledger.store.settings import StoreSettings
from ledger.store.sync import ADOPTIONS_MAX, RECHECK_SECONDS, Command, _run_id
from ledger.store.view import LedgerView
from ledger.store.wire import StoreChanged, check_aof, is_missing_script, translate

T = TypeVar("T")
MAX_BATCH = 256


class _Waiting:
    """A call on its way: its commands' place in a batch and who waits for the answer."""

    __slots__ = ("call", "future", "store_id")

    def __init__(self, call: ScriptCall[Any], future: asyncio.Future[Any]) -> None:
        self.call = call
        self.future = future
        self.store_id = b""


class AsyncStore:
    """Runs script calls of one event loop in batches on one pinned connection.

    While a batch waits for its fsync the next one gathers, so that the number of confirmed writes a second does not
    depend on the number of fsyncs. Nothing is ever sent twice by this class.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self.settings = settings
        self.view = LedgerView(settings.redis.shards)
        self.report: Report | None = None
        self._kwargs = settings.connection_kwargs()
        self._connection: Any = None
        self._queue: deque[_Waiting] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._run_id = ""
        self._checked_at = -math.inf
        self._ready = False
        self._closed = False
        self._loaded: set[str] = set()

    async def open(self) -> None:
        """Verifies the store and agrees on its id; raises as `SyncStore.open`."""
        await self._connected()
        if self._task is None:
            self._task = asyncio.create_task(self._pump(), name="store-batches")

    async def close(self) -> None:
        """Ends the batcher; calls still waiting fail as unavailable."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._fail(self._take(len(self._queue)), StoreUnavailable("the store client was closed", sent=False))
        await self._drop()

    async def run(self, call: ScriptCall[T]) -> T:
        """Runs one call; what it wrote is confirmed on disk before the answer. Raises as `SyncStore.run`.

        A caller that is cancelled while waiting does not stop the write.
        """
        for _ in range(ADOPTIONS_MAX):
            try:
                return await self._submit(call)
            except StoreChanged as changed:
                self.view.adopt(call.shard, changed.store_id)
        raise StoreUnavailable("the store keeps changing its id", sent=False)

    async def _submit(self, call: ScriptCall[T]) -> T:
        if self._closed:
            raise StoreUnavailable("the store client was closed", sent=False)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(call, future))
        self._wake.set()
        return await future

    def _take(self, most: int) -> list[_Waiting]:
        return [self._queue.popleft() for _ in range(min(most, len(self._queue)))]

    @staticmethod
    def _fail(batch: Sequence[_Waiting], error: Exception) -> None:
        for waiting in batch:
            if not waiting.future.done():
                waiting.future.set_exception(error)

    async def _pump(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                batch = self._take(MAX_BATCH)
                try:
                    await self._send(batch)
                except asyncio.CancelledError:
                    self._fail(batch, Unconfirmed("the store client was closed", sent=True))
                    raise
                except Exception as error:  # handed to every caller of the batch, never swallowed
                    self._fail(batch, error)

    async def _send(self, batch: Sequence[_Waiting]) -> None:
        connection = await self._connected()
        live = [waiting for waiting in batch if not waiting.future.cancelled()]
        if not live:
            return
        await self._load({waiting.call.script.sha: waiting.call.script.source for waiting in live})
        for waiting in live:
            waiting.store_id = self.view.ids[waiting.call.shard]
        commands: list[Command] = [self.view.arguments(waiting.call) for waiting in live]
        if self.settings.waits_aof:
            commands.append(self.settings.aof_command())
        replies = await self._exchange(connection, commands)
        unconfirmed = None
        if self.settings.waits_aof:
            unconfirmed = check_aof(replies[-1], self.settings.redis.aof_local, self.settings.redis.aof_replicas)
        for waiting, reply in zip(live, replies, strict=False):
            self._answer(waiting, reply, unconfirmed)

    def _answer(self, waiting: _Waiting, reply: Any, unconfirmed: StoreUnavailable | None) -> None:
        future, call = waiting.future, waiting.call
        if future.done():
            return
        if isinstance(reply, ResponseError):
            if is_missing_script(reply):
                # Somebody flushed the script cache: nothing ran, so this is not a second send of a write.
                self._loaded.discard(call.script.sha)
                self._queue.append(waiting)
                self._wake.set()
                return
            future.set_exception(translate(reply))
            return
        n = reply[0]
        if n >= 0:
            if unconfirmed is not None:
                future.set_exception(unconfirmed)
                return
            self.view.confirmed(call.shard, n, waiting.store_id)
        try:
            future.set_result(call.decode(reply))
        except Exception as error:  # a reply that cannot be read fails its own caller only
            future.set_exception(error)

    async def _load(self, scripts: dict[str, str]) -> None:
        missing = [sha for sha in scripts if sha not in self._loaded]
        if missing:
            replies = await self._exchange(self._connection, [["SCRIPT", "LOAD", scripts[sha]] for sha in missing])
            for reply in replies:
                if isinstance(reply, ResponseError):
                    raise translate(reply)
            self._loaded.update(missing)

    async def _exchange(self, connection: Any, commands: Sequence[Command]) -> list[Any]:
        """Sends all commands in one write and reads every reply; an error reply is returned, not raised."""
        sent = False
        replies: list[Any] = []
        try:
            _require_open(connection)
            packed = connection.pack_commands(commands)
            sent = True
            await connection.send_packed_command(packed, check_health=False)
            async with asyncio.timeout(self.settings.wait_seconds + 2.0):
                for _ in commands:
                    try:
                        reply = await connection.read_response(
                            disable_decoding=True, timeout=math.inf, disconnect_on_error=False
                        )
                    except ResponseError as error:
                        reply = error
                    replies.append(reply)
        except (RedisError, OSError, TimeoutError) as error:
            await self._drop()
            kind = Unconfirmed if sent else StoreUnavailable
            raise kind(f"the store did not answer ({type(error).__name__})", sent=sent) from None
        except BaseException:
            await self._drop()
            raise
        return replies

    async def _connected(self) -> Any:
        try:
            if self._connection is None or not self._connection.is_connected:
                await self._drop()
                self._connection = await self._connect()
                self._loaded.clear()
                await self._meet(self._connection)
            if time.monotonic() - self._checked_at > RECHECK_SECONDS:
                await self._verify(self._connection)
        except BaseException:
            # A connection that was not met in full must not serve the next batch as if it had been.
            await self._drop()
            raise
        return self._connection

    async def _connect(self) -> Any:
        kwargs = dict(self._kwargs)
        kind: type[Any] = Connection
        if "path" in kwargs:
            kind = UnixDomainSocketConnection
        elif self.settings.url.startswith("rediss:"):
            kind = SSLConnection
        connection = kind(**kwargs)
        try:
            await connection.connect()
        except (RedisError, OSError, TimeoutError) as error:
            raise StoreUnavailable(f"the store cannot be reached ({type(error).__name__})", sent=False) from None
        return connection

    async def _meet(self, connection: Any) -> None:
        """A server life not met before has its settings verified first (C-21)."""
        replies = await self._exchange(connection, [["INFO", "server"]])
        if isinstance(replies[0], ResponseError):
            raise translate(replies[0])
        run_id = _run_id(replies[0])
        if run_id != self._run_id:
            await self._verify(connection)
            self._run_id = run_id
        if not self._ready:
            first = (await self._exchange(connection, init_commands(self.view)[:1]))[0]
            if isinstance(first, ResponseError):
                raise translate(first)
            adopt_first(self.view, first, self.settings.redis)
            adopt_all(self.view, await self._exchange(connection, init_commands(self.view)))
            self._ready = True

    async def _verify(self, connection: Any) -> None:
        # Until it passes, nothing goes out: also a connection made meanwhile starts with this check (C-21).
        self._checked_at = -math.inf
        facts = facts_from(await self._exchange(connection, COMMANDS))
        self.report = judge(facts, self.settings.redis)
        require(facts, self.settings.redis)
        self._checked_at = time.monotonic()

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)


def _require_open(connection: Any) -> None:
    """redis-py would reconnect on its own; a write and its WAITAOF must share one connection (C-20)."""
    if not connection.is_connected:
        raise RedisConnectionError("the connection was closed")
