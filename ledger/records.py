"""Stored records as frozen values; the letters used in the store are translated here and nowhere else.

The layouts are in `ledger/store/layouts.py`; the heads of `ledger/lua/lib/session.lua`, `entry.lua` and `run.lua` say
what the letters mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.long_integers import read_json
from ledger.outcomes import EntryView, project
from ledger.states import CALL_BY_CODE, MUTATION_BY_CODE, CallStatus, MutationStatus, RunStatus
from ledger.store.codec import raw, unpack_record

_ANSWERS = {"c": "completed", "a": "not_executed", "u": "unknown"}


@dataclass(frozen=True, slots=True)
class ReadbackNote:
    """What a registered readback answered: `completed`, `not_executed` or `unknown`. `at` is store ms."""

    at: int
    by: str
    answer: str
    note: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A mutation of a logical turn. `order` counts first intents in the turn; `not_after` is store ms (C-91).

    `late_report` is what an attempt reported after somebody had reconciled it: kept as evidence, changes nothing.
    `readback_tries` counts questions about this attempt; `readbacks` holds the last answers.
    """

    logical_turn_id: str
    mutation_id: str
    tool: str
    status: MutationStatus
    revision: int
    order: int
    not_after: int
    reason: str | None
    metadata: Mapping[str, str] | None
    reconciled_by: str | None
    run_id: str
    index: int
    late_report: MutationStatus | None = None
    readback_tries: int = 0
    readbacks: tuple[ReadbackNote, ...] = ()

    @classmethod
    def read(cls, logical_turn_id: str, mutation: bytes, packed: bytes) -> Entry:
        """Reads a packed entry; raises StoreError (format_too_new) for a newer one."""
        e = unpack_record("entry", packed)
        run_id, _, index = e["ri"].partition(":")
        late = e.get("ls") or e.get("pl")
        asked = e.get("rb") or {"n": 0}
        return cls(
            logical_turn_id=logical_turn_id,
            mutation_id=mutation.hex(),
            tool=e["tl"],
            status=MUTATION_BY_CODE[e["s"]],
            revision=e["rv"],
            order=e["o"],
            not_after=e["na"],
            reason=e.get("r"),
            metadata=json.loads(e["md"]) if "md" in e else None,
            reconciled_by=e.get("rc"),
            run_id=run_id,
            index=int(index),
            late_report=MUTATION_BY_CODE[late] if late else None,
            readback_tries=asked["n"],
            readbacks=tuple(
                ReadbackNote(row["at"], row["by"], _ANSWERS[row["an"]], row["no"]) for row in asked.get("ev", ())
            ),
        )

    def outcome(self) -> dict[str, Any] | None:
        """The `mutation_outcome/v1` record, derived now (C-100). Entries exist only with a recorded intent."""
        return project(
            EntryView(
                logical_turn_id=self.logical_turn_id,
                mutation_id=self.mutation_id,
                tool=self.tool,
                status=self.status,
                intent_recorded=True,
                reason=self.reason,
                metadata=self.metadata,
            )
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """A logical turn: whose it is, its deliveries (hex identities, first one first) and entries by first intent."""

    logical_turn_id: str
    agent: str
    user: str
    deliveries: tuple[str, ...]
    finished: bool
    revision: int
    created_at: int
    entries: tuple[Entry, ...]

    @classmethod
    def read(cls, logical_turn_id: str, packed: bytes, entries: Sequence[bytes]) -> Turn:
        """Reads a packed turn and its entries, given as raw id, packed entry, raw id, ..."""
        t = unpack_record("turn", packed)
        found = [Entry.read(logical_turn_id, entries[i], entries[i + 1]) for i in range(0, len(entries), 2)]
        return cls(
            logical_turn_id=logical_turn_id,
            agent=t["a"],
            user=t["u"],
            deliveries=tuple(raw(delivery).hex() for delivery in t["d"]),
            finished=bool(t.get("f")),
            revision=t["rv"],
            created_at=t["at"],
            entries=tuple(sorted(found, key=lambda entry: entry.order)),
        )


@dataclass(frozen=True, slots=True)
class Session:
    """A session's meta and its turns, oldest first. Times are store ms.

    `owner` is the fencing token of the worker that holds it now; it begins `<n>-<worker's pid in hex>x` (C-30).
    """

    session_id: str
    tenant: str
    generation: int
    created_at: int
    last_message_at: int
    live_runs: int
    owner: str | None
    turns: tuple[Turn, ...]

    @classmethod
    def read(cls, packed_meta: bytes, rows: Sequence[Any], owner: bytes) -> Session:
        """Reads the reply of `read_session`."""
        m = unpack_record("session", packed_meta)
        turns = [Turn.read(rows[i].decode(), rows[i + 1], rows[i + 2]) for i in range(0, len(rows), 3)]
        return cls(m["s"], m["tn"], m["g"], m["at"], m["lm"], m["lv"], owner.decode() or None, tuple(turns))


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a run as stored. `result` is the tool's own content while the journal is kept."""

    index: int
    tool: str
    mutation_id: str
    status: CallStatus
    protected: bool
    level: str | None
    approval_id: str | None
    rule: str | None
    refusal: str | None
    result: Any
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class Run:
    """A run as its callers may see it. `journal_length` is the cursor to read events from.

    `narration` is what a handler returned, None before that and for a plan.
    """

    run_id: str
    tenant: str
    session_id: str
    agent: str
    user: str
    principal: str
    delivery: str
    delivery_id: str | None
    status: RunStatus
    end_code: str | None
    logical_turn_id: str | None
    journal_length: int
    handler: str | None
    narration: Any
    calls: tuple[Call, ...]

    @classmethod
    def read(cls, view: Sequence[Any]) -> Run:
        """Reads the view that `admit_delivery`, `read_run` and `cancel_run` answer."""
        run_id, flat, entries, turn, length = view
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        m, s = unpack_record("run_meta", fields[b"m"]), unpack_record("run_state", fields[b"s"])
        turn_id = turn.decode() or None
        # A handler run's calls are counted in its state: they come one by one.
        calls = tuple(_call(i, fields, entries[i], turn_id) for i in range(s.get("co", m["co"])))
        return cls(
            run_id=run_id.decode(),
            tenant=m["tn"],
            session_id=m["s"],
            agent=m["a"],
            user=m["u"],
            principal=m["p"],
            delivery=raw(m["d"]).hex(),
            delivery_id=m.get("di"),
            status=RunStatus(s["st"]),
            end_code=s.get("ec"),
            logical_turn_id=turn_id,
            journal_length=length,
            handler=m.get("h"),
            narration=json.loads(fields[b"nr"]) if b"nr" in fields else None,
            calls=calls,
        )


def run_id_in(view: Sequence[Any]) -> str:
    """The id of a run in the view that `Run.read` reads."""
    run_id: bytes = view[0]
    return run_id.decode()


def ended_in(view: Sequence[Any]) -> bool:
    """Whether the run in such a view has ended. Raises StoreError (format_too_new)."""
    flat = view[1]
    return RunStatus(unpack_record("run_state", flat[2 * flat[::2].index(b"s") + 1])["st"]).ended


def _call(index: int, fields: Mapping[bytes, bytes], packed_entry: bytes, turn_id: str | None) -> Call:
    c = unpack_record("call", fields[str(index).encode()])
    result = fields.get(b"r%d" % index)
    mutation = raw(c["m"])
    return Call(
        index=index,
        tool=c["t"],
        mutation_id=mutation.hex(),
        status=CALL_BY_CODE[c["st"]],
        protected=bool(c.get("pr")),
        level=c.get("lv"),
        approval_id=c.get("ap"),
        rule=c.get("ru"),
        refusal=c.get("rf"),
        result=json.loads(result) if result else None,
        entry=Entry.read(turn_id, mutation, packed_entry) if packed_entry and turn_id else None,
    )


@dataclass(frozen=True, slots=True)
class Approval:
    """An approval request and its decision; `arguments` is None once the call has ended (C-83). Times are store ms."""

    approval_id: str
    state: str
    tenant: str
    session_id: str
    run_id: str
    index: int
    tool: str
    mutation_id: str
    level: str
    requested_by: str
    user: str
    requested_at: int
    expires_at: int
    decided_by: str | None
    decided_at: int | None
    comment: str | None
    arguments: dict[str, Any] | None

    @classmethod
    def read(cls, approval_id: str, packed: bytes, arguments: bytes) -> Approval:
        """Reads a packed approval and the arguments kept apart from it."""
        a = unpack_record("approval", packed)
        return cls(
            approval_id=approval_id,
            state=a["st"],
            tenant=a["tn"],
            session_id=a["s"],
            run_id=a["run"],
            index=a["i"],
            tool=a["tl"],
            mutation_id=raw(a["m"]).hex(),
            level=a["lv"],
            requested_by=a["p"],
            user=a["u"],
            requested_at=a["at"],
            expires_at=a["ex"],
            decided_by=a.get("by"),
            decided_at=a.get("da"),
            comment=a.get("cm"),
            arguments=read_json(arguments) if arguments else None,
        )


@dataclass(frozen=True, slots=True)
class Event:
    """One journal event; `number` is its position, counted from 1. `word` is what happened, where one fits."""

    number: int
    type: str
    at: int
    index: int | None
    mutation_id: str | None
    approval_id: str | None
    outcome: dict[str, Any] | None
    revision: int | None
    word: str | None

    @classmethod
    def read(cls, number: int, packed: bytes) -> Event:
        """Reads a packed event at a position."""
        e = unpack_record("event", packed)
        return cls(
            number=number,
            type=e["e"],
            at=e["a"],
            index=e.get("i"),
            mutation_id=raw(e["m"]).hex() if "m" in e else None,
            approval_id=e.get("ap"),
            outcome=json.loads(e["o"]) if "o" in e else None,
            revision=e.get("rv"),
            word=e.get("x"),
        )
