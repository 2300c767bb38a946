"""Owning sessions: claim, renew, release, sweep (C-30 to C-33; architecture steps 4 and 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ledger.attempts import BeginPolicy, Work, read_work
from ledger.handlers import HandlerOffer
from ledger.store.call import ScriptCall
from ledger.store.codec import pack, pack_values


@dataclass(frozen=True, slots=True)
class Claimed:
    """A session now owned, under `token`, and what to do in it first."""

    sid: str
    token: str
    work: Work


@dataclass(frozen=True, slots=True)
class ClaimReply:
    """Sessions claimed in one shard and how many stay ready there."""

    ready_left: int
    sessions: tuple[Claimed, ...]


def claim_sessions(
    shard: int,
    nonce: str,
    most: int,
    policy: BeginPolicy,
    *,
    awake: bool = True,
    offer: HandlerOffer | None = None,
) -> ScriptCall[ClaimReply]:
    """Claims up to `most` ready sessions and begins the first call in each; the same nonce gets the same answer.

    `awake` also promises to look again within 2 s. `most` 0 only promises. `offer` bounds the handlers that all these
    sessions together start.

    Raises when run, Refused with policy_stale.
    """
    request = (
        nonce,
        most,
        *policy.values,
        awake or None,
        offer.packed if offer else None,
    )

    def decode(reply: list[Any]) -> ClaimReply:
        sessions = tuple(Claimed(row[0].decode(), row[1].decode(), read_work(row[3])) for row in reply[2])
        return ClaimReply(reply[1], sessions)

    return ScriptCall.of("claim_sessions", shard, pack_values(request), decode=decode)


@dataclass(frozen=True, slots=True)
class Renewal:
    """Answer for one session: `held` False when another owner has it.

    `cancelled_step` is the step of the call in flight if its run was cancelled (C-55), else 0.
    `news` counts what an owner that waits should look at; None until it was told to wait or given a handler (C-31).
    """

    held: bool
    cancelled_step: int
    news: int | None = None


def renew_leases(shard: int, rows: Sequence[tuple[str, str]], lease_ms: int) -> ScriptCall[tuple[Renewal, ...]]:
    """Renews leases `(sid, token)`; answers in the rows' order."""

    def decode(reply: list[Any]) -> tuple[Renewal, ...]:
        flat = reply[1]
        rows = (flat[i : i + 3] for i in range(0, len(flat), 3))
        return tuple(Renewal(ends > 0, step, news if news >= 0 else None) for ends, step, news in rows)

    return ScriptCall.of("renew_leases", shard, pack({"le": lease_ms, "rows": rows}), decode=decode)


def release_sessions(shard: int, rows: Sequence[tuple[str, str]]) -> ScriptCall[bool]:
    """Gives sessions `(sid, token)` back at a clean stop; True when a worker must be woken (C-34)."""
    return ScriptCall.of("release_sessions", shard, pack({"rows": rows}), decode=lambda reply: bool(reply[1]))


@dataclass(frozen=True, slots=True)
class SweepReply:
    """What one sweep of a shard did; `claim` asks the sweeper to look for ready sessions."""

    swept: bool
    claim: bool
    reclaimed: int
    expired: int


def sweep_shard(shard: int, lease_ms: int, *, interval_ms: int = 900, most: int = 50) -> ScriptCall[SweepReply]:
    """Sweeps ended leases, expired approvals and forgotten ready sessions, at most once per interval a shard."""

    def decode(reply: list[Any]) -> SweepReply:
        return SweepReply(reply[0] != -1, bool(reply[1]), len(reply[2]), reply[3])

    return ScriptCall.of("sweep_shard", shard, pack({"le": lease_ms, "iv": interval_ms, "mx": most}), decode=decode)


def switch_off(shard: int) -> ScriptCall[bool]:
    """Takes the promise to look back; False when sessions became ready meanwhile."""
    return ScriptCall.of("switch_off", shard, decode=lambda reply: reply[1] == b"off")
