"""Outcomes of a session: its history, and the snapshot of one turn as server-sent events (C-110)."""

from __future__ import annotations

from flask import Response
from flask_openapi.blueprint import APIBlueprint

from ledger.config import Role
from ledger.errors import Refused
from ledger.history import outcomes, read_session, read_turn
from service.auth import authorize
from service.describe import media, operation
from service.door import current_door
from service.incoming import SSE, choose, last_event_id, read_query
from service.jsonio import json_response
from service.models import MutationEventsQuery, SessionQuery
from service.present import changed_outcomes
from service.replies import OutcomesReply
from service.streams import Frame, stream_response

api = APIBlueprint("outcomes", __name__)


@api.get("/api/mutation-outcomes", **operation(role=Role.READ, query=SessionQuery, replies={200: OutcomesReply}))
def history() -> Response:
    """Every retained outcome, oldest turn first, in a turn by first intent; empty for an unknown session."""
    principal = authorize(Role.READ)
    query = read_query(SessionQuery)
    door = current_door()
    session = door.store.run(read_session(principal.tenant, query.session_id, door.shards))
    return json_response({"mutation_outcomes": outcomes(session)})


@api.get(
    "/api/mutation-events",
    **operation(
        role=Role.READ,
        query=MutationEventsQuery,
        replies={200: media(SSE)},
        problems=("not_acceptable", "not_found", "cursor_ahead"),
    ),
)
def snapshot() -> Response:
    """What changed in a turn after a cursor, and every unknown outcome; ends by itself."""
    principal = authorize(Role.READ)
    choose((SSE,))
    query = read_query(MutationEventsQuery)
    after = last_event_id(query.after)
    door = current_door()
    call = read_turn(principal.tenant, query.session_id, query.logical_turn_id, door.shards)
    session = door.store.run(call)
    if session is None or not session.turns:
        raise Refused("no such session or logical turn", code="not_found")
    turn = session.turns[0]
    if after > turn.revision:
        raise Refused(f"the latest revision is {turn.revision}", code="cursor_ahead")
    frames: list[Frame] = [("mutation_outcome", revision, record) for revision, record in changed_outcomes(turn, after)]
    return stream_response(SSE, frames)
