"""The inbox and decisions over HTTP; every channel ends in `ledger.approvals.decide` (C-41, C-42)."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import structlog
from flask import Response, g
from flask_openapi.blueprint import APIBlueprint

from ledger.approvals import Decided, Decision, Position, decide, pending_approvals, read_approval
from ledger.config import Role
from ledger.errors import LedgerError, Refused
from ledger.faultpoints import reach
from ledger.identity import session_hash
from ledger.ids import shard_of_id, shard_of_session
from ledger.records import Approval
from ledger.tokens import Principal
from service.auth import authorize
from service.describe import operation
from service.door import FrontDoor, current_door
from service.incoming import path_value, read_body, read_query
from service.jsonio import json_response
from service.models import ApprovalsQuery, DecisionRequest, NoQuery
from service.present import approval_object
from service.replies import ApprovalReply, ApprovalsReply

log = structlog.get_logger(__name__)

T = TypeVar("T")
api = APIBlueprint("approvals", __name__)


@api.get(
    "/api/approvals",
    **operation(role=Role.APPROVE, query=ApprovalsQuery, replies={200: ApprovalsReply}, problems=("not_an_approver",)),
)
def inbox() -> Response:
    """Pending approvals of the tenant, oldest first."""
    principal = authorize(Role.APPROVE)
    query = read_query(ApprovalsQuery)
    page, after = _pending(current_door(), principal.tenant, query)
    shown = [approval_object(approval) for approval in page]
    return json_response({"approvals": shown, "next": None if after is None else str(after)})


@api.get(
    "/api/approvals/<approval_id>",
    **operation(
        role=Role.APPROVE,
        path=("approval_id",),
        replies={200: ApprovalReply},
        problems=("not_an_approver", "not_found"),
    ),
)
def show() -> Response:
    """One approval in any state."""
    principal = authorize(Role.APPROVE)
    read_query(NoQuery)
    return json_response(approval_object(_read(current_door(), principal)[1]))


@api.post(
    "/api/approvals/<approval_id>",
    **operation(
        role=Role.APPROVE,
        path=("approval_id",),
        body=DecisionRequest,
        replies={200: ApprovalReply},
        problems=(
            "not_an_approver", "requester_may_not_approve", "not_found", "already_decided", "approval_expired",
            "approval_cancelled", "confirmation_mismatch",
        ),
    ),
)  # fmt: skip
def answer() -> Response:
    """Decide an approval; the first decision wins."""
    door = current_door()
    try:
        decided = _decide(door)
    except LedgerError as error:
        door.metrics.decisions.labels(error.code).inc()
        log.warning("decision_not_taken", code=error.code, principal=g.get("principal"))
        raise
    door.metrics.decisions.labels(decided.how).inc()
    return json_response(approval_object(decided.approval))


def _decide(door: FrontDoor) -> Decided:
    principal = authorize(Role.APPROVE)
    read_query(NoQuery)
    asked = read_body(DecisionRequest)
    shard, before = _read(door, principal)
    decision = Decision(
        approval_id=before.approval_id,
        tenant=principal.tenant,
        decision=asked.decision,
        decided_by=principal.name,
        requester_may_approve=door.config.policy.requester_may_approve,
        confirm=asked.confirm,
        comment=asked.comment,
    )
    reach("decide.asked")
    decided = door.write(decide(decision, shard), {"decided": "unknown"})
    reach("decide.confirmed")
    door.wake(decided.wake)
    if decided.how == "expired":
        raise Refused("the decision came too late", code="approval_expired")
    # A denied call has ended, and its arguments with it (C-83).
    kept = before.arguments if decided.approval.state == "approved" else None
    return replace(decided, approval=replace(decided.approval, arguments=kept))


def _pending(door: FrontDoor, tenant: str, query: ApprovalsQuery) -> tuple[list[Approval], Position | None]:
    """One page and where the next begins. No further than the shard that was read least far, so nothing is missed."""
    shards = range(door.shards)
    if query.session_id is not None:
        shard = shard_of_session(session_hash(tenant, query.session_id), door.shards)
        shards = range(shard, shard + 1)
    after = None if query.after is None else Position.read(query.after)
    found: list[tuple[Position, Approval]] = []
    ends: list[Position] = []
    for shard in shards:
        rows = door.store.run(pending_approvals(shard, tenant, query.limit, session_id=query.session_id, after=after))
        door.wake(rows.wake)
        found += zip(rows.positions, rows.approvals, strict=True)
        ends += [] if rows.last is None else [rows.last]
    return page_of(found, min(ends, default=None), query.limit)


def page_of(found: list[tuple[Position, T]], end: Position | None, limit: int) -> tuple[list[T], Position | None]:
    """The first `limit` up to `end`, to which every shard was read (None: all of it), and what comes next."""
    within = sorted((row for row in found if end is None or row[0] <= end), key=lambda row: row[0])
    page = within[:limit]
    more = page[-1][0] if len(within) > limit else end
    return [row for _, row in page], more


def _read(door: FrontDoor, principal: Principal) -> tuple[int, Approval]:
    approval_id = path_value("approval_id")
    shard = shard_of_id(approval_id, door.shards)
    rows = door.store.run(read_approval(shard, principal.tenant, approval_id)) if shard is not None else None
    if shard is None or rows is None or not rows.approvals:
        raise Refused("no such approval", code="not_found")
    door.wake(rows.wake)
    return shard, rows.approvals[0]
