"""Shared by both stores: key of a shard, WAITAOF, and the one table from server errors to ours."""

from __future__ import annotations

from typing import Any

from redis.exceptions import (
    ClusterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from ledger.errors import Refused, StoreError, StoreUnavailable, StoreWentBack, Unconfirmed

# Codes raised by our own scripts that say "the rules refuse"; the public code is the same word in lower case.
_REFUSALS = frozenset(
    {
        "ALREADY_DECIDED", "APPROVALS_FULL", "APPROVAL_CANCELLED", "APPROVAL_EXPIRED", "ARGUMENTS_INVALID",
        "ATTEMPT_MAY_BE_RUNNING", "ATTEMPT_MISMATCH", "ATTEMPT_VOIDED", "CALL_IN_FLIGHT", "CALL_LIMIT",
        "CONFIRMATION_MISMATCH", "DELIVERY_LIMIT", "DELIVERY_MISMATCH", "DELIVERY_RETIRED", "LEASE_LOST",
        "LOGICAL_TURN_UNAVAILABLE", "NOT_FOUND", "NOT_RECONCILABLE", "POLICY_STALE", "QUEUE_FULL", "READBACK_OVER",
        "REPLAY_DIVERGED", "REQUESTER_MAY_NOT_APPROVE", "RUN_ENDED", "STALE_STEP", "TOMBSTONE_KEY_CHANGED",
        "UNKNOWN_TOOL",
    }
)  # fmt: skip
# Server states in which a write did not happen and may be tried again later (C-26).
_BUSY = (
    "LOADING",
    "BUSY",
    "MISCONF",
    "NOREPLICAS",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "READONLY",
    "OOM",
)
# redis-py takes the code out of these errors' text.
_NAMES = {
    ClusterDownError: "CLUSTERDOWN",
    OutOfMemoryError: "OOM",
    ReadOnlyError: "READONLY",
    TryAgainError: "TRYAGAIN",
}
_NOT_NOW = tuple(_NAMES)
_NO_FUNCTION = "Function not found"


class StoreChanged(Exception):
    """A person accepted the store under a new id; the sender adopts `store_id` and goes on (C-27)."""

    def __init__(self, store_id: str) -> None:
        super().__init__(store_id)
        self.store_id = store_id.encode()


def seq_key(shard: int) -> str:
    """KEYS[1] of every script: the shard's counter hash, which also fixes the slot."""
    return f"ml:{{{shard:02x}}}:seq"


def is_missing_script(error: Exception) -> bool:
    """Whether the server lost its scripts, or its functions: then nothing ran."""
    return isinstance(error, NoScriptError) or (isinstance(error, ResponseError) and str(error) == _NO_FUNCTION)


def is_known_already(error: object) -> bool:
    """Whether somebody else made the function known to the server first."""
    return isinstance(error, ResponseError) and "already exists" in str(error)


def translate(error: ResponseError) -> Exception:
    """Turns a server's error reply into this package's error; the only place where that is done."""
    text = str(error)
    code, _, detail = text.partition(" ")
    detail = detail.split(" script: ", 1)[0]
    if code == "STORE_CHANGED":
        return StoreChanged(detail.strip())
    if code == "STORE_WENT_BACK":
        return StoreWentBack("the store lost confirmed writes: check it, then run `mutation-ledger store accept`")
    if code == "FORMAT_TOO_NEW":
        return StoreError("a newer mutation-ledger wrote this record: update this process", code="format_too_new")
    if code in _REFUSALS:
        return Refused(detail, code=code.lower())
    if is_missing_script(error):
        return StoreUnavailable("the store forgets its scripts", sent=False)
    if isinstance(error, _NOT_NOW) or code in _BUSY or text.startswith(_BUSY):
        known = next((name for kind, name in _NAMES.items() if isinstance(error, kind)), code)
        return StoreUnavailable(f"the store refuses writes now ({known})", sent=False)
    return StoreError(f"unexpected answer of the store: {text[:200]}")


def check_aof(reply: Any, local: int, replicas: int) -> StoreUnavailable | None:
    """Small numbers mean that the wait ran out: the write is not confirmed (C-20)."""
    if isinstance(reply, list) and len(reply) == 2 and reply[0] >= local and reply[1] >= replicas:
        return None
    return Unconfirmed("the store did not confirm the write on disk in time", sent=True)
