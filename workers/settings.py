"""What a worker needs from the configuration, in the units it uses."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.attempts import BeginPolicy
from ledger.config import Config
from ledger.policy import Policy

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Seconds unless named otherwise."""

    concurrency: int
    linger: float
    lease: float
    checkpoint_wait: float
    settlement_wait: float
    cancel_drain: float
    stop_drain: float
    approval_ms: int
    tombstone_ms: int
    stream_bound: int
    rewrite_every: float

    @property
    def lease_ms(self) -> int:
        """The lease as scripts take it."""
        return int(self.lease * 1000)

    @property
    def renew_every(self) -> float:
        """Seconds between renewals and news while something is in flight (C-31)."""
        return min(2.0, self.lease / 3)

    @property
    def lease_margin(self) -> float:
        """Seconds of lease that must be left in the step that sends a call (C-53)."""
        return min(2.0, self.lease / 5)


def worker_settings(config: Config) -> WorkerSettings:
    """Reads a worker's settings."""
    timing = config.timing
    return WorkerSettings(
        concurrency=config.workers.concurrency,
        linger=config.workers.linger_seconds,
        lease=timing.lease_seconds,
        checkpoint_wait=timing.checkpoint_wait_seconds,
        settlement_wait=timing.settlement_wait_seconds,
        cancel_drain=timing.cancel_drain_seconds,
        stop_drain=timing.stop_drain_seconds,
        approval_ms=int(config.policy.approval_timeout_seconds * 1000),
        tombstone_ms=int(config.retention.tombstone_days * DAY_MS),
        stream_bound=config.retention.outcome_stream_maxlen,
        rewrite_every=config.retention.erase_rewrite_minutes * 60,
    )


def begin_policy(config: Config, policy: Policy) -> BeginPolicy:
    """The policy that begin applies in the store (C-51, C-52)."""
    timing = config.timing
    return BeginPolicy(
        digest=policy.digest,
        tool_timeout_ms=int(timing.tool_timeout_seconds * 1000),
        drain_ms=int(timing.cancel_drain_seconds * 1000),
        lease_ms=int(timing.lease_seconds * 1000),
        wrap_up_ms=int(timing.wrap_up_seconds * 1000),
        tombstone_ms=int(config.retention.tombstone_days * DAY_MS),
        execution_ms=policy.budget.execution_ms if policy.budget else None,
        budget_ceiling_ms=policy.budget.ceiling_ms if policy.budget else None,
    )
