"""Runs: state, journal, cancel (C-55, C-112)."""

from __future__ import annotations

from flask import Response
from flask_openapi.blueprint import APIBlueprint

from ledger.config import Role
from ledger.errors import InvalidRequest, Refused
from ledger.ids import shard_of_id
from ledger.runs import cancel_run
from ledger.tokens import Principal
from service.auth import authorize
from service.describe import either, operation
from service.door import FrontDoor, current_door
from service.following import Place, get_journal, get_run, journal_frames
from service.incoming import JSON, NDJSON, SSE, choose, last_event_id, path_value, read_bytes, read_query
from service.jsonio import json_response
from service.models import EventsQuery, NoQuery
from service.present import event_object, run_object
from service.replies import EventsReply, RunReply
from service.streams import stream_response

api = APIBlueprint("runs", __name__)


@api.get(
    "/api/runs/<run_id>",
    **operation(role=Role.TRIGGER, path=("run_id",), replies={200: RunReply}, problems=("not_found",)),
)
def show() -> Response:
    """A run's state."""
    principal = authorize(Role.TRIGGER)
    read_query(NoQuery)
    door = current_door()
    return json_response(run_object(get_run(door, _place(door, principal))))


@api.get(
    "/api/runs/<run_id>/events",
    **operation(
        role=Role.TRIGGER,
        path=("run_id",),
        query=EventsQuery,
        replies={200: either(EventsReply, NDJSON, SSE)},
        problems=("not_found", "not_acceptable", "cursor_ahead", "too_many_streams"),
    ),
)
def events() -> Response:
    """Replay a run's journal, and tail it with follow=1. Nothing is ever run by reading."""
    principal = authorize(Role.TRIGGER)
    form = choose((JSON, NDJSON, SSE))
    query = read_query(EventsQuery)
    after, follow = last_event_id(query.after), query.follow == "1"
    door = current_door()
    place = _place(door, principal)
    if form == JSON and follow:
        raise InvalidRequest(f"follow: needs Accept: {NDJSON} or {SSE}")
    # What is unknown, away or not there yet is told before a stream begins; nothing must be skipped in silence.
    page = get_journal(door, place, after)
    if after > page.length:
        raise Refused(f"the journal has {page.length} events", code="cursor_ahead")
    if form == JSON:
        shown = [event_object(place.run_id, event) for event in page.events]
        return json_response({"events": shown, "next": after + len(shown)})
    closing = "done" if form == NDJSON else "run_completed"
    frames = journal_frames(door, place, after, follow=follow, closing=closing)
    return stream_response(form, frames, door.slots.take())


@api.post(
    "/api/runs/<run_id>/cancel",
    **operation(
        role=Role.TRIGGER,
        path=("run_id",),
        replies={200: RunReply, 202: RunReply},
        problems=("not_found", "run_ended"),
    ),
)
def cancel() -> Response:
    """Cancel a run: 200 `cancelled`, 202 `cancelling` while a call is out."""
    principal = authorize(Role.TRIGGER)
    read_query(NoQuery)
    read_bytes()  # a cancel has no body; one that is sent is bounded like any other and not looked at
    door = current_door()
    place = _place(door, principal)
    reply = door.write(cancel_run(place.shard, place.run_id, place.tenant))
    door.wake(reply.wake)
    if reply.run is None:
        raise Refused("no such run", code="not_found")
    if reply.answer == "ended":
        raise Refused("the run has ended", code="run_ended")
    return json_response(run_object(reply.run, shown_as=reply.answer), 200 if reply.answer == "cancelled" else 202)


def _place(door: FrontDoor, principal: Principal) -> Place:
    run_id = path_value("run_id")
    shard = shard_of_id(run_id, door.shards)
    if shard is None:
        raise Refused("no such run", code="not_found")
    return Place(shard, run_id, principal.tenant)
