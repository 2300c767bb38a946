"""`OutcomeConsumer`: the core driven by `for` or by `async for`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from pydantic import ValidationError

from ledger.config import RedisConfig
from ledger.consumer.confirming import Confirm
from ledger.consumer.core import Core, Options, Start
from ledger.consumer.cursors import NOTHING_READ, CursorStore
from ledger.consumer.links import AsyncLink, SyncLink
from ledger.consumer.outcome import Outcome
from ledger.consumer.resync import resync
from ledger.consumer.steps import Address, Emit, Exchange, Load, Pause, Save, Steps
from ledger.errors import ConfigError
from ledger.store.settings import StoreSettings

T = TypeVar("T")


class OutcomeConsumer:
    """Reads the outcome streams of all shards, at least once, in revision order per logical turn (C-111).

    `store` is a URL or StoreSettings; `tenant` None means every tenant. `start` says where a consumer begins that has
    no saved cursors. `count` bounds the outcomes of one shard in one batch, `block_seconds` how long one read waits.
    `aof_replicas` goes with a URL and is what the service's configuration says: that many replicas hold an outcome
    before it is handed out (C-25). Iterating again goes on after what was processed; one iteration at a time.

    Iterating raises CursorGap when outcomes may be missing, StoreUnavailable when the store does not answer (iterate
    again), StoreError (store_empty) for a store that no service ever opened, and what `cursors` raises.
    """

    def __init__(
        self,
        store: str | StoreSettings,
        cursors: CursorStore,
        *,
        tenant: str | None = None,
        start: Start = Start.BEGINNING,
        count: int = 128,
        block_seconds: float = 2.0,
        aof_replicas: int = 0,
    ) -> None:
        self._settings = store if isinstance(store, StoreSettings) else _settings(store, aof_replicas)
        self._cursors = cursors
        self._core = Core(Options(tenant, start, count, block_seconds, confirm=Confirm.of(self._settings)))
        self._links: dict[Address | None, SyncLink] = {}
        self._async_links: dict[Address | None, AsyncLink] = {}

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self.outcomes())

    def __aiter__(self) -> AsyncIterator[Outcome]:
        return aiter(self.outcomes())

    def outcomes(self, *, once: bool = False) -> Feed[Outcome]:
        """Single outcomes; with `once` until every shard was found read to its end."""
        return Feed(self, lambda: self._core.follow(once=once), self._singly)

    def batches(self, *, once: bool = False) -> Feed[Sequence[Outcome]]:
        """Outcomes as they were read together; a batch counts as processed when the next is asked for."""
        return Feed(self, lambda: self._core.follow(once=once), self._whole)

    def resync(self, tenants: Sequence[str] | None = None) -> Feed[Outcome]:
        """Outcomes as history has them now, of `tenants` (None: this consumer's, else every tenant).

        When the last one was processed the cursors are moved to where the streams ended before, so that iterating
        goes on without a gap. Raises StoreUnavailable, StoreWentBack, StoreError.
        """
        own = self._core.options.tenant
        wanted = tenants if tenants is not None or own is None else [own]
        return Feed(self, lambda: resync(self._core, wanted), lambda emit: iter(emit.outcomes))

    def commit(self) -> None:
        """Saves cursors after everything handed out so far, the outcome at hand included; blocks until it is safe."""
        if self._core.progress is not None:
            self._core.progress.done[:] = self._core.progress.handed
            for _ in self.drive(self._core.save()):
                raise AssertionError("saving hands out nothing")

    def close(self) -> None:
        """Closes the connections of synchronous iteration; iterating again opens them again."""
        for link in self._links.values():
            link.close()

    async def aclose(self) -> None:
        """The same for asynchronous iteration."""
        for link in self._async_links.values():
            await link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def drive(self, steps: Steps[None]) -> Iterator[Emit]:
        """Does what `steps` ask for, yielding what they emit."""
        answer: Any = None
        try:
            while True:
                try:
                    step = steps.send(answer)
                except StopIteration:
                    return
                answer = None
                match step:
                    case Exchange():
                        answer = self._link(step.node).exchange(step.commands)
                    case Emit():
                        yield step
                    case Save():
                        self._cursors.save(step.cursors)
                    case Load():
                        answer = self._cursors.load()
                    case Pause():
                        time.sleep(step.seconds)
        finally:
            steps.close()

    async def adrive(self, steps: Steps[None]) -> AsyncIterator[Emit]:
        """`drive` for an event loop."""
        answer: Any = None
        try:
            while True:
                try:
                    step = steps.send(answer)
                except StopIteration:
                    return
                answer = None
                match step:
                    case Exchange():
                        answer = await self._async_link(step.node).exchange(step.commands)
                    case Emit():
                        yield step
                    case Save():
                        await asyncio.to_thread(self._cursors.save, step.cursors)
                    case Load():
                        answer = await asyncio.to_thread(self._cursors.load)
                    case Pause():
                        await asyncio.sleep(step.seconds)
        finally:
            steps.close()

    def _link(self, node: Address | None) -> SyncLink:
        if node not in self._links:
            self._links[node] = SyncLink(self._settings, node, self._core.options.block_seconds)
        return self._links[node]

    def _async_link(self, node: Address | None) -> AsyncLink:
        if node not in self._async_links:
            self._async_links[node] = AsyncLink(self._settings, node, self._core.options.block_seconds)
        return self._async_links[node]

    def _singly(self, emit: Emit) -> Iterator[Outcome]:
        handed, done = self._core.standing.handed, self._core.standing.done
        for outcome in emit.outcomes:
            position = outcome.stream_id or NOTHING_READ
            handed[outcome.shard] = position
            yield outcome
            done[outcome.shard] = position

    def _whole(self, emit: Emit) -> Iterator[Sequence[Outcome]]:
        for shard, end in emit.ends.items():
            self._core.standing.handed[shard] = end
        yield emit.outcomes


class Feed(Generic[T]):
    """Something to iterate over with `for` or with `async for`."""

    def __init__(
        self, consumer: OutcomeConsumer, steps: Callable[[], Steps[None]], expand: Callable[[Emit], Iterator[T]]
    ) -> None:
        self._consumer = consumer
        self._steps = steps
        self._expand = expand

    def __iter__(self) -> Iterator[T]:
        for emit in self._consumer.drive(self._steps()):
            yield from self._expand(emit)

    async def __aiter__(self) -> AsyncIterator[T]:
        async for emit in self._consumer.adrive(self._steps()):
            for item in self._expand(emit):
                yield item


def _settings(url: str, aof_replicas: int) -> StoreSettings:
    try:
        return StoreSettings(RedisConfig(url=url, aof_replicas=aof_replicas))
    except ValidationError:
        raise ConfigError(
            "the store's URL must begin with redis://, rediss:// or unix://, aof_replicas be 0 or more"
        ) from None
