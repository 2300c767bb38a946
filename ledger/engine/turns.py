"""One delivery through the engine: admitted, followed to its end, its adapter told and asked on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from ledger.admission import Admitted, Delivery
from ledger.declared import declare_tools, read_declared
from ledger.engine.adapter import Adapter, overrides
from ledger.engine.deciding import Asking
from ledger.engine.deps import Deps
from ledger.engine.telling import Teller
from ledger.errors import Refused, StoreUnavailable, StoreUnsafe
from ledger.ids import shard_of_id
from ledger.proposing import POLICY_STALE
from ledger.records import Run
from ledger.runs import read_journal, read_run

TICK_SECONDS = 1.0
TELL_SECONDS = 5.0
"""How long the end of a turn waits for an adapter that is still being told."""
STALE_MAX = 3


async def admit(deps: Deps, build: Callable[[], Delivery], own_tools: frozenset[str]) -> Admitted:
    """Admits a delivery, confirmed on disk; `build` makes it anew when hosts have declared tools since (C-05).

    Raises what `build`, `admit_delivery` and the store raise.
    """
    for _ in range(STALE_MAX):
        delivery = build()
        try:
            admitted = await deps.write(deps.proposer.admission(delivery))
        except Refused as error:
            if error.code != POLICY_STALE:
                raise
            await catch_up(deps, deps.proposer.shard(delivery), own_tools)
        else:
            await deps.wake(admitted.wake)
            return admitted
    raise Refused("tools are being declared again and again", code=POLICY_STALE)


async def catch_up(deps: Deps, shard: int, own_tools: frozenset[str]) -> None:
    """Reads what is declared in a shard; an emptied or older store is told this host's own tools again."""
    found = await deps.store.run(read_declared(shard))
    if not own_tools <= found.tools:
        found = await deps.write(declare_tools(shard, sorted(own_tools)))
    deps.proposer.live.adopt(shard, found)


class Following:
    """Follows one run. It answers and tells only what it read in the store (C-25)."""

    def __init__(self, deps: Deps, adapter: Adapter, admitted: Admitted) -> None:
        self._deps = deps
        self._adapter = adapter
        self._admitted = admitted
        self._read_last: Run | None = None
        self._shard = shard_of_id(admitted.run_id, deps.shards) or 0
        self._seen = 0
        self._teller = Teller()
        self._asking = Asking(deps, adapter, self._teller) if overrides(adapter, "request_human") else None
        self._tells_events = overrides(adapter, "on_event")
        self._tells = self._tells_events or overrides(adapter, "on_mutation_outcome")

    async def to_end(self, seconds: float) -> Run:
        """The run as read last: ended, or as it was when `seconds` were over. A store that is away is waited for."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        try:
            watch = self._deps.hints.watch if self._tells or self._asking else self._deps.hints.watch_end
            with watch(self._admitted.run_id) as hint:
                await self._look(again=False)
                # Hints before the watch are lost to whoever tells or asks; an end is remembered.
                late = self._tells or self._asking is not None
                while not self._ended and loop.time() < end:
                    if not late:
                        await hint.wait(min(TICK_SECONDS, max(0.0, end - loop.time())))
                    late = False
                    hint.clear()
                    await self._look()
        finally:
            if self._asking is not None:
                self._asking.close()
        await self._teller.told(TELL_SECONDS)
        return self._run

    @property
    def _run(self) -> Run:
        """The run as read last."""
        return self._read_last or self._admitted.run

    @property
    def _ended(self) -> bool:
        return self._admitted.ended if self._read_last is None else self._read_last.status.ended

    async def _look(self, *, again: bool = True) -> None:
        with suppress(StoreUnavailable, StoreUnsafe):
            if again:
                await self._read()
            if self._tells:
                await self._tell()
            if self._asking is not None:
                self._asking.update(self._run)

    async def _read(self) -> None:
        reply = await self._deps.store.run(read_run(self._shard, self._admitted.run_id, self._deps.tenant))
        await self._deps.wake(reply.wake)
        if reply.run is None:
            raise Refused("the run's session was erased", code="not_found")
        self._read_last = reply.run

    async def _tell(self) -> None:
        run = self._run
        while self._seen < run.journal_length:
            page = await self._deps.store.run(read_journal(self._shard, run.run_id, run.tenant, self._seen))
            if not page.events:
                return
            for event in page.events:
                self._seen = event.number
                if self._tells_events:
                    self._teller.tell(self._adapter.on_event, event)
                if event.outcome is not None and event.revision is not None:
                    self._teller.tell(
                        self._adapter.on_mutation_outcome, event.outcome, mutation_revision=event.revision
                    )
