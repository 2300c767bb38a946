"""Reading the ledger of a session, and lists of sessions and unknown outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ledger.identity import delivery_identity, session_hash
from ledger.ids import shard_of_session
from ledger.records import Entry, Session
from ledger.store.call import ScriptCall
from ledger.store.codec import unpack_record


def read_session(tenant: str, session_id: str, shards: int) -> ScriptCall[Session | None]:
    """The whole ledger of a session, oldest turn first; None when this tenant has no such session."""
    return _read(tenant, session_id, b"", shards)


def read_turn(tenant: str, session_id: str, logical_turn_id: str, shards: int) -> ScriptCall[Session | None]:
    """One turn by id; `turns` is empty when the session has none of that id."""
    return _read(tenant, session_id, logical_turn_id.encode("utf-8", "replace"), shards)


def read_delivery(
    tenant: str, session_id: str, agent: str, user: str, delivery_id: str, shards: int
) -> ScriptCall[Session | None]:
    """The turn of one delivery; `turns` is empty when it holds no mutation yet (C-92)."""
    identity = bytes.fromhex(delivery_identity(tenant, session_id, agent, user, delivery_id))
    return _read(tenant, session_id, b"d" + identity, shards)


def _read(tenant: str, session_id: str, which: bytes, shards: int) -> ScriptCall[Session | None]:
    sid = session_hash(tenant, session_id)

    def decode(reply: list[Any]) -> Session | None:
        return Session.read(reply[1], reply[2], reply[3]) if reply[1] else None

    return ScriptCall.of("read_session", shard_of_session(sid, shards), sid, tenant, which, decode=decode)


def outcomes(session: Session | None) -> list[dict[str, Any]]:
    """Published outcomes, oldest turn first, in a turn by first intent (contract section 15)."""
    if session is None:
        return []
    records = (entry.outcome() for turn in session.turns for entry in turn.entries)
    return [record for record in records if record is not None]


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session in a list; `at` is the store time it is sorted by. `entry` is set in a list of unknowns."""

    session_id: str
    at: int
    live_runs: int
    turns: int
    entry: Entry | None


def list_sessions(shard: int, tenant: str, most: int, *, unknowns: bool = False) -> ScriptCall[tuple[SessionRow, ...]]:
    """A tenant's sessions in one shard, newest first, or its unknown outcomes there."""

    def decode(reply: list[Any]) -> tuple[SessionRow, ...]:
        return tuple(_row(row) for row in reply[1])

    what = "unknowns" if unknowns else "sessions"
    return ScriptCall.of("list_sessions", shard, tenant, what, most, decode=decode)


def _row(row: list[Any]) -> SessionRow:
    packed, member, score, packed_entry, turn = row
    meta = unpack_record("session", packed)
    entry = None
    if packed_entry:
        entry = Entry.read(turn.decode(), bytes.fromhex(member.decode().rsplit(":", 1)[1]), packed_entry)
    return SessionRow(meta["s"], int(float(score)), meta["lv"], len(meta["ts"]), entry)
