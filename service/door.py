"""What a front-door process holds: one value, made by the app factory, reached by every route."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import structlog
from flask import current_app

from ledger.admission import AdmissionLimits
from ledger.config import Config
from ledger.declared import read_declared
from ledger.errors import StoreUnavailable
from ledger.faultpoints import reach
from ledger.plugins import Plugins
from ledger.proposing import Proposer
from ledger.store import ScriptCall, SyncStore
from ledger.tokens import TokenBook
from ledger.tombstone import pin_key
from ledger.wake import Waker
from service.beating import PolicyBeat
from service.listing import CatalogWatch
from service.metrics import Metrics
from service.rates import RateLimits
from service.streams import StreamSlots
from service.waiting import Hub

T = TypeVar("T")
EXTENSION = "mutation_ledger"

log = structlog.get_logger(__name__)


@dataclass
class FrontDoor:
    """The process's parts. `stopping` is set at a warm stop: streams and waits then end by themselves."""

    config: Config
    store: SyncStore
    waker: Waker
    plugins: Plugins
    tokens: TokenBook
    proposer: Proposer
    hub: Hub
    metrics: Metrics
    slots: StreamSlots
    rates: RateLimits
    stopping: threading.Event = field(default_factory=threading.Event)
    beat: PolicyBeat = field(init=False)
    catalogs: CatalogWatch = field(init=False)
    key_known: bool = False

    def __post_init__(self) -> None:
        self.beat = PolicyBeat(lambda: self.store, self.plugins.policy, self.stopping)
        self.catalogs = CatalogWatch(lambda: self.store, self.proposer.catalogs, self.stopping)

    def start(self) -> None:
        """Begins what goes on beside requests."""
        self.beat.start()
        if self.config.mcp.servers:
            self.catalogs.start()

    @property
    def limits(self) -> AdmissionLimits:
        """The limits of an admission."""
        return self.proposer.limits

    @property
    def shards(self) -> int:
        """The number of shards of the store."""
        return self.config.redis.shards

    def write(self, call: ScriptCall[T], unknown: Mapping[str, Any] | None = None) -> T:
        """Runs a write; if it was not confirmed and time is left, sends the same value once more (C-22).

        `unknown` is what the problem document says when the write may have happened all the same (C-26).

        Raises what `SyncStore.run` raises.
        """
        began = time.monotonic()
        sent = False
        try:
            try:
                return self.store.run(call)
            except StoreUnavailable as first:
                sent = bool(first.extra.get("sent"))
                if not sent or time.monotonic() - began >= self.store.settings.wait_seconds:
                    raise
                log.warning("write_sent_again", script=call.script.name)
                return self.store.run(call)
        except StoreUnavailable as error:
            if unknown is not None and (sent or error.extra.get("sent")):
                error.extra["members"] = dict(unknown)
            raise

    def require_key(self) -> None:
        """Before the first write that leaves or needs a tombstone: the store has this process's key (C-84).

        Raises:
            Refused: tombstone_key_changed.
            StoreError: the store cannot tell now.
        """
        if not self.key_known:
            self.store.run(pin_key(self.limits.tombstone_key))
            self.key_known = True

    def wake(self, wanted: bool) -> None:
        """Wakes a worker if a script's reply asked for it."""
        if wanted:
            reach("wake.asked")
            self.waker.wake()
            reach("wake.enqueued")

    def catch_up(self, shard: int) -> None:
        """Reads what hosts declared in a shard (C-05). Raises what `SyncStore.run` raises."""
        self.proposer.live.adopt(shard, self.store.run(read_declared(shard)))

    def close(self) -> None:
        """Ends the subscriber and closes idle connections."""
        self.stopping.set()
        self.hub.close()
        self.store.close()


def current_door() -> FrontDoor:
    """The front door of the app that handles this request."""
    return cast("FrontDoor", current_app.extensions[EXTENSION])
