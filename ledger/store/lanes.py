"""The lanes of an event loop to one server: calls of a tick share one write, one fsync and one WAITAOF."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import AskError, RedisError, ResponseError

from ledger.durability import Report
from ledger.errors import Refused, StoreUnavailable, Unconfirmed
from ledger.store.call import ScriptCall
from ledger.store.confirming import confirm_shard, not_confirmed
from ledger.store.dialing import dial_async
from ledger.store.lane import Acquaintance, Lane, Met
from ledger.store.placement import Node
from ledger.store.replies import Command, ReplyStream
from ledger.store.settings import StoreSettings
from ledger.store.view import LedgerView
from ledger.store.wire import check_aof, is_missing_script, translate
from ledger.tasks import end_tasks

MAX_BATCH = 256
SMALL_BATCH = 16
"""Fewer calls are not split over lanes: they had better share one fsync."""


class Waiting:
    """A call on its way: what was sent for it and who waits for the answer."""

    __slots__ = ("call", "future", "store_id")

    def __init__(self, call: ScriptCall[Any], future: asyncio.Future[Any]) -> None:
        self.call = call
        self.future = future
        self.store_id = b""


class Lanes:
    """Runs script calls of one event loop in batches, each on one of a few pinned connections to `node`.

    While the server works on one batch, this process reads the answers of another and the next one gathers, so that
    neither waits for the other. Nothing is ever sent twice here. `settings` is asked for anew at every batch. With
    `confirms_reads` a batch ends with one counter write for everything in it that was only read (C-25).
    """

    def __init__(
        self,
        settings: Callable[[], StoreSettings],
        view: LedgerView,
        node: Node | None,
        lanes: int,
        met: Met,
        *,
        confirms_reads: bool = False,
    ) -> None:
        self.node = node
        self._settings = settings
        self._view = view
        self._confirms_reads = confirms_reads
        self._known = Acquaintance(settings(), node, met)
        self._lanes = [Lane(self._known) for _ in range(lanes)]
        self._idle: list[asyncio.Event] = []
        self._roused = False
        self._queue: deque[Waiting] = deque()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def report(self) -> Report | None:
        """What the server's settings were found to promise, None before the first look."""
        return self._known.report

    @property
    def queued(self) -> int:
        """Calls that no lane has taken yet."""
        return len(self._queue)

    async def open(self) -> None:
        """Connects and verifies the server, if that was not done; raises as `SyncStore.open`."""
        if not self._tasks:
            await self._lanes[0].ready()
            self._tasks = [asyncio.create_task(self._serve(lane), name="store-lane") for lane in self._lanes]

    async def tell(self, commands: Sequence[Command]) -> None:
        """Sends commands on a connection of their own to a server that may be one not to be trusted.

        Raises StoreUnavailable.
        """
        connection = await dial_async(self._settings(), self.node)
        stream = ReplyStream(connection)
        try:
            stream.send(commands)
            async with asyncio.timeout(self._settings().answer_seconds):
                for _ in commands:
                    await stream.read()
        except (RedisError, OSError, TimeoutError) as error:
            raise StoreUnavailable(f"the store did not answer ({type(error).__name__})", sent=True) from None
        finally:
            await connection.disconnect(nowait=True)

    async def once(self, commands: Sequence[Command]) -> list[Any]:
        """Runs plain commands on a connection of their own; replies in order, errors among them."""
        lane = Lane(self._known)
        await lane.ready()
        try:
            return await lane.exchange(commands)
        finally:
            await lane.drop()

    async def close(self) -> None:
        """Ends the lanes; calls still waiting fail as unavailable."""
        await end_tasks(self._tasks)
        self._tasks = []
        _fail(self._take(len(self._queue)), StoreUnavailable("the store client was closed", sent=False))
        for lane in self._lanes:
            await lane.drop()

    def put(self, waiting: Waiting) -> None:
        """Lines a call up for the next batch."""
        self._queue.append(waiting)
        self._rouse()

    def _rouse(self) -> None:
        # One at a time: a lane leaves the share of the others and rouses the next.
        if self._idle and not self._roused:
            self._roused = True
            self._idle.pop().set()

    def _take(self, most: int) -> list[Waiting]:
        return [self._queue.popleft() for _ in range(min(most, len(self._queue)))]

    def _share(self) -> list[Waiting]:
        """This lane's part of the queue; lanes that are idle get theirs."""
        waiting = len(self._queue)
        if waiting <= SMALL_BATCH:
            return self._take(waiting)
        return self._take(min(MAX_BATCH, max(SMALL_BATCH, -(-waiting // (len(self._idle) + 1)))))

    async def _serve(self, lane: Lane) -> None:
        roused = asyncio.Event()
        while True:
            if not self._queue:
                roused.clear()
                self._idle.append(roused)
                await roused.wait()
                self._roused = False
            batch = self._share()
            if self._queue:
                self._rouse()
            try:
                await self._send(lane, batch)
            except asyncio.CancelledError:
                _fail(batch, Unconfirmed("the store client was closed", sent=True))
                raise
            except Exception as error:  # handed to every caller of the batch, never swallowed
                _fail(batch, error)

    async def _send(self, lane: Lane, batch: Sequence[Waiting]) -> None:
        live = [waiting for waiting in batch if not waiting.future.cancelled()]
        if not live:
            return
        await lane.ready()
        settings = self._settings()
        waits = settings.waits_aof(self.report)
        confirm = self._confirm_of(live, settings)
        calls = [waiting.call for waiting in live] + ([] if confirm is None else [confirm])
        await lane.load([call.script for call in calls])
        for waiting in live:
            waiting.store_id = self._view.ids[waiting.call.shard]
        commands: list[Command] = [self._view.arguments(call) for call in calls]
        if waits:
            commands += settings.aof_commands()
        replies = await lane.exchange(commands)
        unconfirmed = None
        if waits:
            unconfirmed = check_aof(replies[-1], settings.redis.aof_local, settings.redis.aof_replicas)
        unread = None
        if confirm is not None:
            unread = _unread(lane, confirm, replies[len(live)], unconfirmed)
        for waiting, reply in zip(live, replies, strict=False):
            if not waiting.future.done():
                self._answer(lane, waiting, reply, unconfirmed, unread)

    def _confirm_of(self, live: Sequence[Waiting], settings: StoreSettings) -> ScriptCall[None] | None:
        """What ends the batch; any of its calls may be refused, and a refusal is told like a reading."""
        if not (self._confirms_reads and settings.confirms_reads(self.report)):
            return None
        told = [waiting.call.shard for waiting in live if waiting.call.told]
        return confirm_shard(told[-1]) if told else None

    def _answer(
        self,
        lane: Lane,
        waiting: Waiting,
        reply: Any,
        unconfirmed: StoreUnavailable | None,
        unread: StoreUnavailable | None,
    ) -> None:
        future, call = waiting.future, waiting.call
        if isinstance(reply, ResponseError):
            if is_missing_script(reply):
                # Somebody flushed the script cache: nothing ran, so this is not a second send of a write.
                lane.forget(call.script)
                self.put(waiting)
            else:
                error = reply if isinstance(reply, AskError) else translate(reply)
                future.set_exception(unread if unread is not None and isinstance(error, Refused) else error)
            return
        n = reply[0]
        if n < 0 and unread is not None and call.told:
            future.set_exception(unread)
            return
        if n >= 0:
            if unconfirmed is not None:
                future.set_exception(unconfirmed)
                return
            self._view.confirmed(call.shard, n, waiting.store_id)
        try:
            future.set_result(call.decode(reply))
        except Exception as error:  # a reply that cannot be read fails its own caller only
            future.set_exception(error)


def _unread(
    lane: Lane, confirm: ScriptCall[None], reply: Any, unconfirmed: StoreUnavailable | None
) -> StoreUnavailable | None:
    """Why nothing that was only read may be told; None once the replicas hold it."""
    if is_missing_script(reply):
        lane.forget(confirm.script)
    return not_confirmed() if unconfirmed is not None or isinstance(reply, ResponseError) else None


def _fail(batch: Sequence[Waiting], error: Exception) -> None:
    for waiting in batch:
        if not waiting.future.done():
            waiting.future.set_exception(error)
