"""The boundaries of the path, the named points at each, and which of them a worker can be killed at."""

from __future__ import annotations

# Step of the path -> points, in order. `asked` is before a script is sent, `confirmed` after it is on disk.
BOUNDARIES: dict[str, tuple[str, ...]] = {
    "admit": ("admit.asked", "admit.confirmed"),
    "decide": ("decide.asked", "decide.confirmed"),
    "wake": ("wake.asked", "wake.enqueued", "wake.heard"),
    "claim": ("claim.asked", "claim.confirmed"),
    "begin": ("begin.asked",),
    "confirm": ("begin.confirmed",),
    "recheck": ("dispatch.due", "recheck.due", "recheck.passed"),
    "dispatch": ("dispatch.sent",),
    "reply": ("reply.received",),
    "settle": ("settle.asked",),
    "confirm settlement": ("settle.confirmed",),
    "publish": ("publish.due",),
    "callback": ("callback.done",),
    "release": ("release.asked", "release.confirmed"),
    "put back": ("putback.asked", "putback.confirmed"),
    "renew": ("renew.asked", "renew.confirmed"),
    "sweep": ("sweep.asked", "sweep.confirmed"),
    "handler": ("propose.asked", "propose.confirmed", "end.asked", "end.confirmed"),
    "store": ("store.sending", "store.sent", "store.answered"),
}

ALL = frozenset(point for points in BOUNDARIES.values() for point in points)
FRONT_DOOR = tuple(
    point for step in ("admit", "decide", "wake", "publish") for point in BOUNDARIES[step] if point != "wake.heard"
)
WORKER = tuple(point for points in BOUNDARIES.values() for point in points if point not in FRONT_DOOR)
