"""For trusted hosts: the snapshot of a delivery's turn, and metadata of a mutation (C-90, C-92)."""

from __future__ import annotations

from flask import Response
from flask_openapi.blueprint import APIBlueprint

from ledger.config import Role
from ledger.history import read_delivery
from ledger.host_view import turn_state
from ledger.reconciliation import Target, attach_metadata
from service.auth import acting, authorize
from service.describe import operation
from service.door import current_door
from service.incoming import read_body, read_query
from service.jsonio import json_response
from service.models import MetadataRequest, NoQuery, StateQuery
from service.replies import MutationOutcome, StateReply

api = APIBlueprint("host", __name__)

_ACTING = ("agent_required", "agent_not_allowed", "user_not_allowed")


@api.get(
    "/api/mutation-state",
    **operation(role=Role.HOST, query=StateQuery, replies={200: StateReply}, problems=_ACTING),
)
def state() -> Response:
    """The snapshot of the turn that a delivery made or continued; null while it holds no mutation."""
    principal = authorize(Role.HOST)
    query = read_query(StateQuery)
    agent, user = acting(principal, query.agent, query.user)
    door = current_door()
    session = door.store.run(
        read_delivery(principal.tenant, query.session_id, agent, user, query.delivery_id, door.shards)
    )
    found = session.turns[0] if session is not None and session.turns else None
    return json_response({"mutation_state": None if found is None else turn_state(found)})


@api.post(
    "/api/mutation-metadata",
    **operation(
        role=Role.HOST,
        body=MetadataRequest,
        replies={200: MutationOutcome},
        problems=(*_ACTING, "not_found"),
    ),
)
def metadata() -> Response:
    """Attach metadata to a mutation, during execution or later."""
    principal = authorize(Role.HOST)
    read_query(NoQuery)
    asked = read_body(MetadataRequest)
    agent, user = acting(principal, asked.agent, asked.user)
    door = current_door()
    target = Target(
        tenant=principal.tenant,
        session_id=asked.session_id,
        agent=agent,
        user=user,
        mutation_id=asked.mutation_id,
        delivery_id=asked.delivery_id,
        logical_turn_id=asked.logical_turn_id,
    )
    record, _ = door.write(attach_metadata(target, asked.metadata, door.shards))
    return json_response(record)
