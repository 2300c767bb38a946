"""`POST /api/trigger`: admit a delivery; answer at once, wait, or stream (C-60 to C-64)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flask import Response, request
from flask_openapi.blueprint import APIBlueprint

from ledger.admission import Admitted
from ledger.config import Role
from ledger.errors import LedgerError
from ledger.faultpoints import reach
from ledger.ids import shard_of_id
from service.auth import acting, authorize
from service.delivering import admit, build_delivery
from service.describe import either, operation
from service.door import FrontDoor, current_door
from service.following import Place, journal_frames, wait_for_end
from service.incoming import JSON, NDJSON, SSE, choose, idempotency_key, read_body, read_query
from service.jsonio import json_response
from service.models import TriggerQuery, TriggerRequest
from service.present import run_object
from service.replies import RunReply
from service.streams import stream_response

api = APIBlueprint("trigger", __name__)


@api.post(
    "/api/trigger",
    **operation(
        role=Role.TRIGGER,
        body=TriggerRequest,
        query=TriggerQuery,
        replies={200: either(RunReply, NDJSON, SSE), 202: RunReply},
        problems=(
            "agent_required", "agent_not_allowed", "user_not_allowed", "not_acceptable", "logical_turn_unavailable",
            "delivery_limit", "delivery_retired", "delivery_mismatch", "unknown_handler", "unknown_tool",
            "arguments_invalid", "queue_full", "approvals_full", "too_many_streams", "policy_stale",
            "tombstone_key_changed",
        ),
    ),
)  # fmt: skip
def trigger() -> Response:
    """Admit a delivery."""
    door = current_door()
    try:
        return _trigger(door)
    except LedgerError as error:
        door.metrics.admissions.labels(error.code).inc()
        raise


def _trigger(door: FrontDoor) -> Response:
    principal = authorize(Role.TRIGGER)
    form = choose((JSON, NDJSON, SSE))
    query = read_query(TriggerQuery)
    asked = read_body(TriggerRequest)
    build = partial(
        build_delivery,
        door,
        principal,
        asked,
        acting=acting(principal, asked.agent, asked.user),
        delivery_id=idempotency_key(asked.delivery_id),
        traceparent=request.headers.get("traceparent"),
    )
    delivery = build()
    # A stream that cannot be held must be refused before anything is admitted.
    release = door.slots.take() if form != JSON else None
    try:
        reach("admit.asked")
        admitted = admit(door, delivery, build)
        reach("admit.confirmed")
        door.metrics.admissions.labels(admitted.how).inc()
        door.wake(admitted.wake)
        return _answer(door, delivery.tenant, admitted, form, query.wait, release)
    except BaseException:
        if release is not None:
            release()
        raise


def _answer(
    door: FrontDoor, tenant: str, admitted: Admitted, form: str, wait: float | None, release: Callable[[], None] | None
) -> Response:
    place = Place(shard_of_id(admitted.run_id, door.shards) or 0, admitted.run_id, tenant)
    if form != JSON:
        closing = "done" if form == NDJSON else "run_completed"
        return stream_response(form, journal_frames(door, place, 0, follow=True, closing=closing), release)
    run = admitted.run if wait is None else wait_for_end(door, place, admitted, wait)
    if run.status.ended:
        return json_response(run_object(run), 200)
    reply = json_response(run_object(run, shown_as=None if wait is None else "still_running"), 202)
    reply.headers["Location"] = f"/api/runs/{run.run_id}"
    return reply
