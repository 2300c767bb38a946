"""Erasure of a session over HTTP (C-82)."""

from __future__ import annotations

import time

from flask import Response
from flask_openapi.blueprint import APIBlueprint

from ledger.config import Role
from ledger.erasure import erase_session, erasure_left
from ledger.errors import Refused, StoreUnavailable
from ledger.identity import check_session_id
from service.auth import authorize
from service.describe import operation
from service.door import FrontDoor, current_door
from service.incoming import path_value, read_bytes, read_query
from service.jsonio import json_response
from service.models import EraseQuery
from service.replies import ErasureReply

api = APIBlueprint("sessions", __name__)

LOOK_SECONDS = 0.1


@api.delete(
    "/api/sessions/<session:session_id>",
    **operation(
        role=Role.ERASE,
        path=("session_id",),
        query=EraseQuery,
        replies={202: ErasureReply, 204: {"description": "Everything is deleted"}},
        problems=("not_found", "tombstone_key_changed"),
    ),
)
def erase() -> Response:
    """Erase a session: it is invisible at once, and deleted in pieces; `wait` until that is done."""
    principal = authorize(Role.ERASE)
    wait = read_query(EraseQuery).wait
    session_id = check_session_id(path_value("session_id"))
    read_bytes()  # an erasure has no body; one that is sent is bounded like any other and not looked at
    door = current_door()
    door.require_key()
    call = erase_session(principal.tenant, session_id, door.limits.tombstone_ms, door.shards)
    if not door.write(call, {"erased": "unknown"}):
        raise Refused("no such session", code="not_found")
    if wait is not None and _is_gone(door, principal.tenant, session_id, wait):
        return Response(status=204)
    return json_response({"session_id": session_id, "status": "erasing"}, 202)


def _is_gone(door: FrontDoor, tenant: str, session_id: str, seconds: float) -> bool:
    """Whether the sweep deleted everything within the time; a store that is away meanwhile is asked again."""
    end = time.monotonic() + seconds
    call = erasure_left(tenant, session_id, door.shards)
    while True:
        try:
            if not door.store.run(call):
                return True
        except StoreUnavailable:
            if time.monotonic() >= end:
                return False
        if time.monotonic() >= end or door.stopping.wait(LOOK_SECONDS):
            return False
