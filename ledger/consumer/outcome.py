"""A published outcome as a value, read from a stream entry or from history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from ledger.errors import StoreError
from ledger.records import Session
from ledger.states import MutationStatus

FIELDS = [b"tenant", b"session_id", b"logical_turn_id", b"mutation_id", b"mutation_revision", b"record"]
"""The public fields of a stream entry, in the order in which scripts add them (C-111)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One change of a mutation that consumers can see.

    `record` is `mutation_outcome/v1`. `mutation_revision` grows per logical turn with every change of it.
    `stream_id` is None when the outcome was read from history, where only the latest change is kept.
    """

    tenant: str
    session_id: str
    logical_turn_id: str
    mutation_id: str
    mutation_revision: int
    record: dict[str, Any]
    shard: int
    stream_id: str | None


def from_stream(shard: int, entries: Sequence[Any], tenant: bytes | None) -> list[Outcome]:
    """The outcomes of raw XREAD entries, in stream order; those of other tenants left out unless `tenant` is None.

    Raises StoreError (outcome_unreadable) naming the entry, never its content.
    """
    found = []
    for stream_id, fields in entries:
        try:
            values = fields[1::2] if fields[::2] == FIELDS else _by_name(fields)
            if tenant is None or values[0] == tenant:
                whose, session, turn, mutation, revision, record = values
                found.append(
                    Outcome(
                        whose.decode(),
                        session.decode(),
                        turn.decode(),
                        mutation.decode(),
                        int(revision),
                        orjson.loads(record),
                        shard,
                        stream_id.decode(),
                    )
                )
        except (KeyError, ValueError, TypeError):
            where = f"entry {stream_id.decode(errors='replace')} of shard {shard:02x}"
            raise StoreError(f"{where} is not an outcome of this version", code="outcome_unreadable") from None
    return found


def from_history(shard: int, session: Session) -> list[Outcome]:
    """What a session's ledger publishes now, each turn in revision order.

    A call under way is left out, as it is from the streams: what it comes to is published when it is known.
    """
    found = []
    for turn in session.turns:
        for entry in sorted(turn.entries, key=lambda entry: entry.revision):
            record = None if entry.status is MutationStatus.EXECUTION_STARTED else entry.outcome()
            if record is not None:
                found.append(
                    Outcome(
                        session.tenant,
                        session.session_id,
                        turn.logical_turn_id,
                        entry.mutation_id,
                        entry.revision,
                        record,
                        shard,
                        None,
                    )
                )
    return found


def _by_name(fields: Sequence[bytes]) -> list[bytes]:
    """The values in our order; a later version may add fields or send them in another order."""
    named = dict(zip(fields[::2], fields[1::2], strict=True))
    return [named[name] for name in FIELDS]
