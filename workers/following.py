"""What this worker follows when it begins calls: its policy, what hosts declared since, and the figures of begin."""

from __future__ import annotations

import math
from dataclasses import replace

import structlog

from ledger.attempts import BeginPolicy
from ledger.declared import LivePolicy, read_declared
from ledger.policy import Policy
from ledger.store import AsyncStore
from workers.retrying import confirmed

log = structlog.get_logger(__name__)

POLICY_STALE = "policy_stale"


class Following:
    """One a worker. The store refuses `policy_stale` where this knows less than was declared (C-05)."""

    def __init__(self, store: AsyncStore, live: LivePolicy, begin: BeginPolicy) -> None:
        self._store = store
        self._live = live
        self._begin = begin
        self._by_shard: dict[int, BeginPolicy] = {}

    @property
    def policy(self) -> Policy:
        """Resolves calls as of now."""
        return self._live.policy

    def begin(self, shard: int) -> BeginPolicy:
        """What to begin with in a shard."""
        found = self._by_shard.get(shard)
        if found is None:
            found = replace(self._begin, digest=self._live.policy.digest, declared=self._live.version(shard))
            self._by_shard[shard] = found
        return found

    async def catch_up(self, shard: int) -> None:
        """Reads what was declared; waits for a store that is away. Raises StoreWentBack."""
        found = await confirmed(self._store, read_declared(shard), within=math.inf)
        self._live.adopt(shard, found)
        self._by_shard.clear()
        log.info("declared_tools_read", shard=shard, version=found.version, tools=len(found.tools))
