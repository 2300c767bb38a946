"""Reading and cancelling runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ledger.records import Event, Run
from ledger.store.call import ScriptCall

MAX_EVENTS = 500


@dataclass(frozen=True, slots=True)
class RunReply:
    """A run and whether a worker must be woken because reading it wrote an expiry (C-41)."""

    run: Run | None
    wake: bool


def read_run(shard: int, run_id: str, tenant: str) -> ScriptCall[RunReply]:
    """Reads a run; `run` is None when this tenant has no such run."""

    def decode(reply: list[Any]) -> RunReply:
        return RunReply(Run.read(reply[2]) if reply[2] else None, bool(reply[1]))

    return ScriptCall.of("read_run", shard, run_id, tenant, decode=decode)


@dataclass(frozen=True, slots=True)
class CancelReply:
    """What cancelling came to: `cancelled` nothing was begun, `cancelling` a call is out, `ended` too late (C-55)."""

    answer: Literal["cancelled", "cancelling", "ended", "unknown"]
    run: Run | None
    wake: bool


def cancel_run(shard: int, run_id: str, tenant: str) -> ScriptCall[CancelReply]:
    """Cancels a run (C-55). Safe to send again: a run that ended by cancel answers `cancelled` again."""

    def decode(reply: list[Any]) -> CancelReply:
        answer = reply[1].decode()
        return CancelReply(answer, Run.read(reply[3]) if reply[3] else None, bool(reply[2]))

    return ScriptCall.of("cancel_run", shard, run_id, tenant, decode=decode)


@dataclass(frozen=True, slots=True)
class JournalPage:
    """Events after a position, the journal's length, and whether the run has ended. `known` False: no such run."""

    events: tuple[Event, ...]
    length: int
    ended: bool
    known: bool


def read_journal(shard: int, run_id: str, tenant: str, after: int, most: int = MAX_EVENTS) -> ScriptCall[JournalPage]:
    """Reads at most `most` events after position `after` (0 = from the start) (C-112)."""

    def decode(reply: list[Any]) -> JournalPage:
        _, packed, length, ended = reply
        events = tuple(Event.read(after + offset, one) for offset, one in enumerate(packed, start=1))
        return JournalPage(events, max(length, 0), bool(ended), length >= 0)

    return ScriptCall.of("read_journal", shard, run_id, tenant, after, most, decode=decode)
