"""Handing deliveries to a ledger without a front door: nobody is woken unless the test does it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Literal

from ledger import ownership
from ledger.admission import AdmissionLimits, Admitted, Delivery, ProposedCall, admit_delivery
from ledger.attempts import BeginPolicy
from ledger.config import RedisConfig
from ledger.identity import session_hash
from ledger.ids import shard_of_session
from ledger.store import StoreSettings, SyncStore
from ledger.strict_json import check_arguments

SHARDS = 16
DAY_MS = 86_400_000
BEGIN = BeginPolicy("direct", 60_000, 5_000, 30_000, 20_000, DAY_MS)


def limits(policy_digest: str) -> AdmissionLimits:
    """The usual limits, resolved under a policy of that digest."""
    return AdmissionLimits(900_000, 880_000, 300_000, DAY_MS, 30 * DAY_MS, 100, 100, policy_digest, b"k" * 32)


class Direct:
    """Admits and claims on a store of its own; `policy_digest` is what its calls are admitted under."""

    def __init__(self, url: str, *, policy_digest: str = "direct") -> None:
        self.store = SyncStore(StoreSettings(RedisConfig(url=url)))
        self.limits = limits(policy_digest)

    def __enter__(self) -> Direct:
        self.store.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def admit(
        self,
        session: str,
        delivery: str,
        calls: Sequence[tuple[str, dict[str, Any]]],
        *,
        on_error: Literal["stop", "continue"] = "stop",
    ) -> Admitted:
        """Admits protected calls that need no approval."""
        proposed = [ProposedCall(tool, check_arguments(arguments), True) for tool, arguments in calls]
        content = {"calls": [[tool, arguments] for tool, arguments in calls]}
        made = Delivery("acme", session, "ops", "dana", "agent", delivery, proposed, content, on_error)
        return self.store.run(admit_delivery(made, self.limits, SHARDS))

    def claim(self, session: str, *, lease_ms: int) -> list[ownership.Claimed]:
        """Claims what is ready in the session's shard and begins it, as a worker that dies right after would."""
        policy = BeginPolicy(self.limits.policy_digest, 60_000, 5_000, lease_ms, 20_000, DAY_MS)
        call = ownership.claim_sessions(shard_of(session), secrets.token_hex(8), 8, policy, awake=False)
        return list(self.store.run(call).sessions)


def shard_of(session: str) -> int:
    """The shard of a session of tenant `acme`."""
    return shard_of_session(session_hash("acme", session), SHARDS)
