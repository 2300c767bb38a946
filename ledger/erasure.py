"""Erasure, expiry and retention: what leaves the ledger, and when (C-80 to C-84, C-111)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ledger.identity import session_hash
from ledger.ids import new_token, shard_of_session
from ledger.store.call import ScriptCall
from ledger.store.codec import pack

# Longer than any process sends a request again.
REPEAT_MS = 120_000


def erase_session(tenant: str, session_id: str, tombstone_ms: int, shards: int) -> ScriptCall[bool]:
    """First step of an erasure: the session is invisible and cannot come back (C-82). False: no such session.

    The call has a token of its own: sent again, it does not erase what was admitted meanwhile (C-22).
    """
    sid = session_hash(tenant, session_id)
    request = {"sid": sid, "tn": tenant, "td": tombstone_ms, "rq": new_token(), "ls": REPEAT_MS}
    shard = shard_of_session(sid, shards)
    return ScriptCall.of("erase_session", shard, pack(request), decode=lambda reply: reply[1] == b"erased")


def erasure_left(tenant: str, session_id: str, shards: int) -> ScriptCall[bool]:
    """Whether an erasure of this session still has something to delete."""
    sid = session_hash(tenant, session_id)
    shard = shard_of_session(sid, shards)
    return ScriptCall.of("erasure_left", shard, sid, decode=lambda reply: bool(reply[1]))


@dataclass(frozen=True, slots=True)
class RetentionReply:
    """What one retention sweep did. `dirty`: 0, or the mark of data that is deleted but still in the AOF.

    `more`: call again soon.
    """

    expired: int
    erased: int
    trimmed: int
    dirty: int
    more: bool


def sweep_retention(
    shard: int, tombstone_ms: int, stream_bound: int, *, interval_ms: int = 900, most: int = 50
) -> ScriptCall[RetentionReply]:
    """Expires, erases, forgets and trims in bounded pieces, at most once per interval a shard."""
    request = {"iv": interval_ms, "mx": most, "td": tombstone_ms, "ml": stream_bound}

    def decode(reply: list[Any]) -> RetentionReply:
        _, expired, erased, trimmed, dirty, more = reply
        return RetentionReply(expired, erased, trimmed, dirty, bool(more))

    return ScriptCall.of("sweep_retention", shard, pack(request), decode=decode)


def clear_dirty(shard: int, mark: int) -> ScriptCall[bool]:
    """Takes the mark back once a rewrite covers it; an erasure that came later keeps its own."""
    return ScriptCall.of("clear_dirty", shard, mark, decode=lambda reply: bool(reply[1]))
