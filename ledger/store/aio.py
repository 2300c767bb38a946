"""The store for one event loop: every call goes to the lanes of the server that holds its shard."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

import structlog
from redis.exceptions import AskError, ResponseError

from ledger.durability import Report, worst
from ledger.errors import StoreError, StoreUnavailable, StoreWentBack
from ledger.store.call import ScriptCall
from ledger.store.dialing import place_async
from ledger.store.lane import Exchange
from ledger.store.lanes import Lanes, Waiting
from ledger.store.opening import adopt_all, adopt_first, init_command
from ledger.store.placement import Kind, Node, Placement
from ledger.store.settings import StoreSettings
from ledger.store.sync import ADOPTIONS_MAX, MOVES_MAX
from ledger.store.trust import TRUST_SECONDS, check_commands, refuse_commands, require_kept
from ledger.store.view import LedgerView
from ledger.store.wire import StoreChanged, translate

T = TypeVar("T")
log = structlog.get_logger(__name__)
LANES = 4


class AsyncStore:
    """Runs script calls of one event loop in batches, on a few pinned connections a server.

    `confirms_reads` is for who tells others what it reads (C-25); workers act on writes only.
    """

    def __init__(self, settings: StoreSettings, *, lanes: int = LANES, confirms_reads: bool = False) -> None:
        self.settings = settings
        self.view = LedgerView(settings.redis.shards)
        self._kind = settings.address.kind
        self._count = lanes
        self._confirms_reads = confirms_reads
        self._placement: Placement | None = None
        self._servers: dict[Node | None, Lanes] = {}
        # Which server holds each shard: as far as is known, and only while that is known to be right.
        self._held: list[Lanes] = []
        self._serving: list[Lanes] = []
        self._refused: tuple[bytes, ...] = ()
        self._refused_under = b""
        self._trusted_at = -math.inf
        self._placing = asyncio.Lock()
        self._agreed = False
        self._closed = False

    @property
    def report(self) -> Report | None:
        """What the servers' settings were found to promise, the worst of them; None before the first look."""
        return worst(server.report for server in self._servers.values())

    @property
    def queued(self) -> int:
        """Calls that were not sent yet."""
        return sum(server.queued for server in self._servers.values())

    async def open(self) -> None:
        """Verifies the store and agrees on its id; raises as `SyncStore.open`."""
        await self._place()
        if not self._agreed:
            await self._agree()
            self._agreed = True

    async def close(self) -> None:
        """Ends the lanes; calls still waiting fail as unavailable."""
        self._closed = True
        for server in self._servers.values():
            await server.close()

    async def run(self, call: ScriptCall[T]) -> T:
        """Runs one call; what it wrote is confirmed on disk before the answer. Raises as `SyncStore.run`.

        A caller that is cancelled while waiting does not stop the write.
        """
        for _ in range(ADOPTIONS_MAX):
            known = self.view.ids[call.shard]
            try:
                return await self._routed(call)
            except StoreChanged as changed:
                self.view.adopt(call.shard, changed.store_id)
            except StoreWentBack as found:
                await self._refuse_everywhere(found.store_id or known)
                raise
        raise StoreUnavailable("the store keeps changing its id", sent=False)

    @property
    def went_back(self) -> bool:
        """Whether the store was found to lack confirmed writes and nobody has accepted it since (C-27)."""
        return self._refused == tuple(self.view.ids)

    async def trusted(self) -> None:
        """Waits while a server was met anew so lately that other processes may still find something missing (C-27)."""
        while (left := self._trusted_at - time.monotonic()) > 0:
            await asyncio.sleep(left)

    async def _met(self, node: Node | None, exchange: Exchange) -> None:
        """Another life of a server: what this process knows to be confirmed must still be there (C-27)."""
        if self._agreed:
            self._trusted_at = time.monotonic() + TRUST_SECONDS
            looks = check_commands(self.view, self._shards_of(node))
            require_kept(looks, await exchange(looks))

    def _shards_of(self, node: Node | None) -> list[int]:
        server = self._servers.get(node)
        return [shard for shard, serving in enumerate(self._held) if serving is server]

    async def _refuse_everywhere(self, store_id: bytes) -> None:
        """One shard lacks confirmed writes: no other is to be trusted either, by any process. Done once a store id."""
        self._refused = tuple(self.view.ids)
        # A process that never agreed on an id has nothing that could be missing.
        if store_id == self._refused_under or not self._agreed:
            return
        self._refused_under = store_id
        for node, server in self._servers.items():
            try:
                await server.tell(refuse_commands(self.view, self._shards_of(node), store_id))
            except StoreUnavailable as error:
                log.warning("store_not_refused", code=error.code)

    async def command(self, *words: bytes | str | int, shard: int = 0) -> Any:
        """Runs one plain command on the server of a shard; for set-up and tools, not for ledger writes.

        Raises what `SyncStore.command` raises.
        """
        placement = self._placement or await self._place()
        return _checked(await self._servers[placement.of_shard(shard)].once([words]))[0]

    async def each_server(self, *command: str) -> None:
        """Runs one plain command on every server that holds shards; raises as `SyncStore.command`."""
        placement = self._placement or await self._place()
        for node in placement.shards_by_node(self.settings.redis.shards):
            _checked(await self._servers[node].once([command]))

    async def _routed(self, call: ScriptCall[T]) -> T:
        for _ in range(MOVES_MAX):
            # No step of the loop lies between here and the queue on the usual path, so calls of a tick stay together.
            serving = self._serving
            if not serving:
                await self._place()
                serving = self._serving
            try:
                return await self._submit(serving[call.shard], call)
            except AskError:
                # The shard lives elsewhere; the server did nothing, so this is no second send of a write (C-22).
                self._forget()
            except StoreWentBack:
                raise
            except StoreError:
                # Perhaps another server has taken over.
                if self._kind is not Kind.SERVER:
                    self._forget()
                raise
        raise StoreUnavailable("the shard is moving to another server", sent=False)

    def _submit(self, server: Lanes, call: ScriptCall[T]) -> asyncio.Future[T]:
        if self._closed:
            raise StoreUnavailable("the store client was closed", sent=False)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        server.put(Waiting(call, future))
        return future

    def _forget(self) -> None:
        self._placement, self._serving = None, []

    async def _place(self) -> Placement:
        """Finds the servers and opens their lanes; who comes meanwhile waits for the same look."""
        async with self._placing:
            if self._placement is not None and self._serving:
                return self._placement
            if self._closed:
                raise StoreUnavailable("the store client was closed", sent=False)
            known = [node for node in self._servers if node is not None]
            placement = await place_async(self.settings, known)
            shards = placement.shards_by_node(self.settings.redis.shards)
            for node in shards:
                await self._opened(node)
            self._held = [self._servers[placement.of_shard(shard)] for shard in range(self.settings.redis.shards)]
            self._serving = self._held
            self._placement = placement
            return placement

    async def _opened(self, node: Node | None) -> None:
        server = self._servers.get(node)
        if server is None:
            server = Lanes(
                lambda: self.settings,
                self.view,
                node,
                self._count,
                partial(self._met, node),
                confirms_reads=self._confirms_reads,
            )
        await server.open()
        self._servers[node] = server

    async def _agree(self) -> None:
        placement = await self._place()
        first = self._servers[placement.of_shard(0)]
        adopt_first(self.view, _checked(await first.once([init_command(self.view, 0)]))[0], self.settings.redis)
        replies: dict[int, Any] = {}
        for node, shards in placement.shards_by_node(self.settings.redis.shards).items():
            commands = [init_command(self.view, shard) for shard in shards]
            found = _checked(await self._servers[node].once(commands))
            replies.update(zip(shards, found, strict=True))
        adopt_all(self.view, [replies[shard] for shard in sorted(replies)])


def _checked(replies: Sequence[Any]) -> Sequence[Any]:
    for reply in replies:
        if isinstance(reply, ResponseError):
            raise translate(reply)
    return replies
