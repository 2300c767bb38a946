"""The store for one event loop: calls of a tick share one write, one fsync and one WAITAOF."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeVar

from redis.exceptions import ResponseError

from ledger.durability import Report
from ledger.errors import StoreUnavailable, Unconfirmed
from ledger.store.call import ScriptCall
from ledger.store.lane import Acquaintance, Lane
from ledger.store.replies import Command
from ledger.store.settings import StoreSettings
from ledger.store.sync import ADOPTIONS_MAX
from ledger.store.view import LedgerView
from ledger.store.wire import StoreChanged, check_aof, is_missing_script, translate
from ledger.tasks import end_tasks

T = TypeVar("T")
LANES = 4
MAX_BATCH = 256
SMALL_BATCH = 16
"""Fewer calls are not split over lanes: they had better share one fsync."""


class _Waiting:
    """A call on its way: what was sent for it and who waits for the answer."""

    __slots__ = ("call", "future", "store_id")

    def __init__(self, call: ScriptCall[Any], future: asyncio.Future[Any]) -> None:
        self.call = call
        self.future = future
        self.store_id = b""


class AsyncStore:
    """Runs script calls of one event loop in batches, each on one of a few pinned connections.

    While the store works on one batch, this process reads the answers of another and the next one gathers, so that
    neither waits for the other. Nothing is ever sent twice by this class.
    """

    def __init__(self, settings: StoreSettings, *, lanes: int = LANES) -> None:
        self.settings = settings
        self.view = LedgerView(settings.redis.shards)
        self._known = Acquaintance(settings, self.view)
        self._lanes = [Lane(self._known) for _ in range(lanes)]
        self._idle: list[asyncio.Event] = []
        self._roused = False
        self._queue: deque[_Waiting] = deque()
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False

    @property
    def report(self) -> Report | None:
        """What the store's settings were found to promise, None before the first look."""
        return self._known.report

    async def open(self) -> None:
        """Verifies the store and agrees on its id; raises as `SyncStore.open`."""
        await self._lanes[0].ready()
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._serve(lane), name="store-lane") for lane in self._lanes]

    async def close(self) -> None:
        """Ends the lanes; calls still waiting fail as unavailable."""
        self._closed = True
        await end_tasks(self._tasks)
        self._tasks = []
        _fail(self._take(len(self._queue)), StoreUnavailable("the store client was closed", sent=False))
        for lane in self._lanes:
            await lane.drop()

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

    def _submit(self, call: ScriptCall[T]) -> asyncio.Future[T]:
        if self._closed:
            raise StoreUnavailable("the store client was closed", sent=False)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._put(_Waiting(call, future))
        return future

    def _put(self, waiting: _Waiting) -> None:
        self._queue.append(waiting)
        self._rouse()

    def _rouse(self) -> None:
        # One at a time: a lane leaves the share of the others and rouses the next.
        if self._idle and not self._roused:
            self._roused = True
            self._idle.pop().set()

    def _take(self, most: int) -> list[_Waiting]:
        return [self._queue.popleft() for _ in range(min(most, len(self._queue)))]

    def _share(self) -> list[_Waiting]:
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

    async def _send(self, lane: Lane, batch: Sequence[_Waiting]) -> None:
        live = [waiting for waiting in batch if not waiting.future.cancelled()]
        if not live:
            return
        await lane.ready()
        await lane.load([waiting.call.script for waiting in live])
        for waiting in live:
            waiting.store_id = self.view.ids[waiting.call.shard]
        commands: list[Command] = [self.view.arguments(waiting.call) for waiting in live]
        if self.settings.waits_aof:
            commands.append(self.settings.aof_command())
        replies = await lane.exchange(commands)
        unconfirmed = None
        if self.settings.waits_aof:
            unconfirmed = check_aof(replies[-1], self.settings.redis.aof_local, self.settings.redis.aof_replicas)
        for waiting, reply in zip(live, replies, strict=False):
            if not waiting.future.done():
                self._answer(lane, waiting, reply, unconfirmed)

    def _answer(self, lane: Lane, waiting: _Waiting, reply: Any, unconfirmed: StoreUnavailable | None) -> None:
        future, call = waiting.future, waiting.call
        if isinstance(reply, ResponseError):
            if is_missing_script(reply):
                # Somebody flushed the script cache: nothing ran, so this is not a second send of a write.
                lane.forget(call.script)
                self._put(waiting)
            else:
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


def _fail(batch: Sequence[_Waiting], error: Exception) -> None:
    for waiting in batch:
        if not waiting.future.done():
            waiting.future.set_exception(error)
