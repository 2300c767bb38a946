"""Approval requests and their decisions: step 2 of the path (C-40 to C-44). Every channel goes through `decide`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ledger.records import Approval
from ledger.store.call import ScriptCall
from ledger.store.codec import pack


@dataclass(frozen=True, slots=True)
class Decision:
    """One person's answer. `confirm` is the tool name typed for level `confirm`."""

    approval_id: str
    tenant: str
    decision: Literal["approve", "deny"]
    decided_by: str
    requester_may_approve: bool = False
    confirm: str | None = None
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """The approval after the call. `how` is `expired` when it came too late: nothing was approved (C-41)."""

    how: Literal["decided", "repeated", "expired"]
    approval: Approval
    wake: bool


def decide(decision: Decision, shard: int) -> ScriptCall[Decided]:
    """First decision wins; the same again by the same person is answered the same (C-41).

    Raises when run, Refused with: not_found, already_decided, approval_expired, approval_cancelled,
    confirmation_mismatch, requester_may_not_approve.
    """
    request = {
        "id": decision.approval_id,
        "tn": decision.tenant,
        "d": decision.decision,
        "by": decision.decided_by,
        "cf": decision.confirm,
        "cm": decision.comment,
        "rq": decision.requester_may_approve or None,
    }

    def decode(reply: list[Any]) -> Decided:
        return Decided(reply[1].decode(), Approval.read(decision.approval_id, reply[3], b""), bool(reply[2]))

    return ScriptCall.of("decide_approval", shard, pack(request), decode=decode)


@dataclass(frozen=True, slots=True)
class ApprovalRows:
    """Approvals of one shard, and whether reading them wrote an expiry that wants a worker."""

    approvals: tuple[Approval, ...]
    wake: bool


def read_approval(shard: int, tenant: str, approval_id: str) -> ScriptCall[ApprovalRows]:
    """Reads one approval by id; empty when this tenant has none of that id."""
    return _read(shard, tenant, approval_id, 1)


def pending_approvals(shard: int, tenant: str, most: int) -> ScriptCall[ApprovalRows]:
    """Reads a tenant's pending approvals in one shard, oldest first."""
    return _read(shard, tenant, "", most)


def _read(shard: int, tenant: str, approval_id: str, most: int) -> ScriptCall[ApprovalRows]:
    def decode(reply: list[Any]) -> ApprovalRows:
        rows = tuple(Approval.read(row[0].decode(), row[1], row[2]) for row in reply[2])
        return ApprovalRows(rows, bool(reply[1]))

    return ScriptCall.of("read_approvals", shard, tenant, approval_id, most, decode=decode)
