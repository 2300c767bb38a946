"""Approval requests and their decisions: step 2 of the path (C-40 to C-44). Every channel goes through `decide`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from ledger.errors import InvalidRequest
from ledger.identity import session_hash
from ledger.records import Approval
from ledger.store.call import ScriptCall
from ledger.store.codec import pack

_POSITION = re.compile(r"\d{1,15}\.\d{1,12}:[0-9a-f]{34}")


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


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place among pending approvals, oldest first: when it was asked for, in store ms with its place in the plan."""

    score: float
    approval_id: str

    @classmethod
    def read(cls, text: str) -> Position:
        """From `str`.

        Raises:
            InvalidRequest: it is no such text.
        """
        if not _POSITION.fullmatch(text):
            raise InvalidRequest("after: must be what an answer said in `next`")
        score, _, approval_id = text.partition(":")
        return cls(float(score), approval_id)

    def __str__(self) -> str:
        return f"{self.score!r}:{self.approval_id}"


@dataclass(frozen=True, slots=True)
class ApprovalRows:
    """Approvals of one shard, and whether reading them wrote an expiry that wants a worker.

    `positions` are those of a list's approvals, `last` the one up to which it was read if there may be more after it.
    """

    approvals: tuple[Approval, ...]
    wake: bool
    positions: tuple[Position, ...] = ()
    last: Position | None = None


def read_approval(shard: int, tenant: str, approval_id: str) -> ScriptCall[ApprovalRows]:
    """Reads one approval by id; empty when this tenant has none of that id."""
    return _read(shard, tenant, approval_id, 1, "", None)


def pending_approvals(
    shard: int, tenant: str, most: int, *, session_id: str | None = None, after: Position | None = None
) -> ScriptCall[ApprovalRows]:
    """Reads a tenant's pending approvals in one shard, oldest first, at most `most` of those after a position."""
    sid = "" if session_id is None else session_hash(tenant, session_id)
    return _read(shard, tenant, "", most, sid, after)


def _read(
    shard: int, tenant: str, approval_id: str, most: int, sid: str, after: Position | None
) -> ScriptCall[ApprovalRows]:
    def decode(reply: list[Any]) -> ApprovalRows:
        rows = tuple(Approval.read(row[0].decode(), row[1], row[2]) for row in reply[2])
        positions = tuple(Position(float(row[3]), row[0].decode()) for row in reply[2] if row[3])
        last = Position(float(reply[3][0]), reply[3][1].decode()) if reply[3] else None
        return ApprovalRows(rows, bool(reply[1]), positions, last)

    start = "" if after is None else str(after)
    return ScriptCall.of("read_approvals", shard, tenant, approval_id, most, sid, start, decode=decode)
