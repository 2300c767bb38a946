"""Liveness, readiness and metrics (C-21)."""

from __future__ import annotations

from flask import Response
from flask_openapi.blueprint import APIBlueprint

from ledger.config import Role
from ledger.errors import StoreUnsafe, StoreWentBack
from ledger.store.wire import seq_key
from service.auth import authorize
from service.describe import media, operation
from service.door import FrontDoor, current_door
from service.jsonio import json_response
from service.metrics import CONTENT_TYPE
from service.replies import LiveReply, ReadyReply

api = APIBlueprint("health", __name__)


@api.get("/livez", **operation(replies={200: LiveReply}, store=False))
def livez() -> Response:
    """Whether this process serves; never asks the store."""
    return json_response({"status": "alive"})


@api.get("/readyz", **operation(replies={200: ReadyReply}, problems=("policy_differs", "tombstone_key_changed")))
def readyz() -> Response:
    """Whether the store answers and can keep the promise, and other processes follow the same policy."""
    door = current_door()
    durability = _durability(door)
    door.require_key()
    door.beat.check()
    return json_response({"status": "ready", "durability": durability})


@api.get("/metrics", **operation(role=Role.OPS, replies={200: media("text/plain")}, store=False))
def metrics() -> Response:
    """Prometheus metrics of this process, and of the store, where workers keep their counters."""
    authorize(Role.OPS)
    return Response(current_door().metrics.text(), content_type=CONTENT_TYPE)


def _durability(door: FrontDoor) -> str:
    door.store.open()
    try:
        report = door.store.recheck()
    except StoreUnsafe as error:
        error.extra["members"] = {"durability": "unsafe"}
        raise
    refused = door.store.command([["HEXISTS", seq_key(shard), "refused"] for shard in range(door.shards)])
    if any(refused):
        raise StoreWentBack("the store lost confirmed writes: check it, then run `mutation-ledger store accept`")
    return report.verdict.value
