"""Publishing real outcomes: deliveries are admitted, claimed, begun and settled through the ledger's own scripts."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from ledger import attempts, ownership
from ledger.admission import AdmissionLimits, Admitted, Delivery, ProposedCall, admit_delivery
from ledger.config import RedisConfig
from ledger.consumer.keys import outcomes_key
from ledger.identity import session_hash
from ledger.ids import shard_of_session
from ledger.states import MutationStatus
from ledger.store import StoreSettings, SyncStore
from ledger.strict_json import check_arguments

SHARDS = 16
LIMITS = AdmissionLimits(900_000, 880_000, 300_000, 86_400_000, 30 * 86_400_000, 100, 100, "test", b"k" * 32)
POLICY = attempts.BeginPolicy("test", 60_000, 5_000, 30_000, 20_000, 1_000)
Key = tuple[str, str, int]


def session_in(shard: int, tenant: str = "acme") -> str:
    """A fresh session id that lives in `shard`."""
    names = (f"s-{secrets.token_hex(6)}" for _ in itertools.count())
    return next(name for name in names if shard_of_session(session_hash(tenant, name), SHARDS) == shard)


class Publisher:
    """A front door and a worker in one, on one store."""

    def __init__(self, url: str) -> None:
        self.store = SyncStore(StoreSettings(RedisConfig(url=url)))
        self.store.open()

    def admit(
        self,
        session: str,
        calls: int = 1,
        *,
        tenant: str = "acme",
        level: str | None = None,
        delivery: str | None = None,
        on_error: Literal["stop", "continue"] = "stop",
        approval_ms: int = 300_000,
    ) -> Admitted:
        """Hands in a plan of `calls` distinct protected calls; nobody is asked unless `level` is given."""
        limits = replace(LIMITS, approval_ms=approval_ms)
        proposed = [
            ProposedCall("mcp__boards__create", check_arguments({"title": f"secret-{n}"}), True, level)
            for n in range(calls)
        ]
        content = {"calls": [call.tool for call in proposed]}
        made = Delivery(
            tenant, session, "ops", "dana", "agent", delivery or secrets.token_hex(8), proposed, content, on_error
        )
        return self.store.run(admit_delivery(made, limits, SHARDS))

    def begin(self, shard: int, most: int = 64) -> list[ownership.Claimed]:
        """Claims what is ready in a shard; the first call of each session is begun."""
        claim = ownership.claim_sessions(shard, secrets.token_hex(8), most, POLICY)
        return list(self.store.run(claim).sessions)

    def settle(self, shard: int, claimed: ownership.Claimed, status: MutationStatus = MutationStatus.COMPLETED) -> None:
        """Settles every call of a claimed session's plan, one after the other, all with `status`."""
        work: attempts.Work | None = claimed.work
        step = 2
        while isinstance(work, attempts.Begun):
            work, step = self.settle_one(shard, claimed, work, step, status), step + 1

    def settle_one(
        self,
        shard: int,
        claimed: ownership.Claimed,
        work: attempts.Work | None,
        step: int,
        status: MutationStatus = MutationStatus.COMPLETED,
    ) -> attempts.Work | None:
        """Settles one call that was begun, and begins the session's next one in step `step`."""
        assert isinstance(work, attempts.Begun)
        settlement = attempts.Settlement(status)
        call = attempts.settle_attempt(shard, work, claimed.token, settlement, next_step=step, policy=POLICY)
        return self.store.run(call).work

    def work(self, shards: Sequence[int] = range(SHARDS), status: MutationStatus = MutationStatus.COMPLETED) -> None:
        """Does everything that is ready in `shards`."""
        for shard in shards:
            while claimed := self.begin(shard):
                for session in claimed:
                    self.settle(shard, session, status)

    def publish(
        self,
        shard: int,
        calls: int = 1,
        *,
        tenant: str = "acme",
        status: MutationStatus = MutationStatus.COMPLETED,
    ) -> str:
        """One new session in `shard` with `calls` outcomes; its id."""
        session = session_in(shard, tenant)
        self.admit(session, calls, tenant=tenant)
        self.work([shard], status)
        return session

    def close(self) -> None:
        """Closes the connections."""
        self.store.close()


def published(client: Any) -> Iterator[Key]:
    """What the streams hold: (logical turn, mutation, revision), in stream order within each shard."""
    for shard in range(SHARDS):
        for _, fields in client.xrange(outcomes_key(shard)):
            turn, mutation = fields[b"logical_turn_id"].decode(), fields[b"mutation_id"].decode()
            yield turn, mutation, int(fields[b"mutation_revision"])
