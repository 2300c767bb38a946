"""What must hold of a store after every step, whatever was done: compared with the reference and with itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ledger.outcomes import record_json
from ledger.records import Entry, Run, Session
from ledger.states import CallStatus, RunStatus
from tests.model.reference import Reference, S, U
from tests.support.ledger import SEQ, Ledger, key, sid_of

OPEN = frozenset({CallStatus.QUEUED, CallStatus.WAITING_FOR_APPROVAL, CallStatus.RUNNING})


@dataclass(frozen=True, slots=True)
class World:
    """One look at everything."""

    ledger: Ledger
    sessions: Mapping[str, Session]
    runs: Mapping[str, Run]

    @property
    def entries(self) -> dict[tuple[str, str], Entry]:
        """All ledger entries by turn and mutation."""
        every = (entry for session in self.sessions.values() for turn in session.turns for entry in turn.entries)
        return {(entry.logical_turn_id, entry.mutation_id): entry for entry in every}


def look(ledger: Ledger, sessions: list[str], runs: list[str]) -> World:
    """Reads everything once."""
    found = {name: ledger.session(name) for name in sessions}
    present = {name: session for name, session in found.items() if session is not None}
    return World(ledger, present, {run: ledger.read(run) for run in runs})


def entries_are_the_reference_s(world: World, reference: Reference) -> None:
    """Status, revision, metadata: exactly what the contract's moves lead to (C-10, C-12)."""
    stored = {key: (entry.status, entry.revision, entry.metadata) for key, entry in world.entries.items()}
    expected = {
        key: (mutation.status, mutation.revision, mutation.metadata) for key, mutation in reference.mutations.items()
    }
    assert stored == expected
    for session in world.sessions.values():
        for turn in session.turns:
            assert turn.revision == reference.revisions[turn.logical_turn_id]


def stream_tells_every_change(world: World) -> None:
    """Per turn in revision order, and the last record of an entry is its projection (C-111)."""
    last: dict[tuple[str, str], dict[str, str]] = {}
    revisions: dict[str, int] = {}
    for row in world.ledger.outcomes():
        turn, revision = row["logical_turn_id"], int(row["mutation_revision"])
        assert revision > revisions.get(turn, 0)
        revisions[turn] = revision
        last[turn, row["mutation_id"]] = row
    for name, entry in world.entries.items():
        if entry.status is S:
            continue
        outcome = entry.outcome()
        assert outcome is not None
        assert last[name]["record"] == record_json(outcome)
        assert int(last[name]["mutation_revision"]) == entry.revision


def owners_are(world: World, owners: Mapping[str, str]) -> None:
    """One owner a session, by its whole token; owned and ready exclude each other (C-30, C-31)."""
    stored = {sid_of(name): session.owner for name, session in world.sessions.items() if session.owner}
    assert stored == owners
    raw = world.ledger.raw
    owned = {sid.decode() for sid in raw.zrange(key("owned"), 0, -1)}
    ready = {sid.decode() for sid in raw.zrange(key("ready"), 0, -1)}
    assert owned == owners.keys()
    assert not owned & ready
    for name in world.sessions:
        sid = sid_of(name)
        if sid not in owned and raw.zcard(key(f"queue:{sid}")):
            assert sid in ready


def one_call_is_in_flight_a_session(world: World, in_flight: Mapping[str, tuple[str, int]]) -> None:
    """A started entry or a running call is the one its owner was given (C-31)."""
    running = [
        (sid_of(run.session_id), (run.run_id, call.index))
        for run in world.runs.values()
        for call in run.calls
        if call.status is CallStatus.RUNNING
    ]
    assert dict(running) == in_flight
    assert len(running) == len(in_flight)
    for session in world.sessions.values():
        started = [entry for turn in session.turns for entry in turn.entries if entry.status is S]
        assert len(started) <= 1
        for entry in started:
            assert in_flight[sid_of(session.session_id)] == (entry.run_id, entry.index)


def queues_hold_what_can_go_on(world: World) -> None:
    """A live run is queued, or waits for a person and holds back nobody (C-31)."""
    live = [run for run in world.runs.values() if not run.status.ended]
    waiting = {run.run_id for run in live if run.status is RunStatus.WAITING_FOR_APPROVAL}
    for name, session in world.sessions.items():
        queue = {run.decode() for run in world.ledger.raw.zrange(key(f"queue:{sid_of(name)}"), 0, -1)}
        mine = {run.run_id for run in live if run.session_id == name}
        assert queue == mine - waiting
        assert session.live_runs == len(mine)
    for run in live:
        head = next((call for call in run.calls if call.status in OPEN), None)
        if run.run_id in waiting:
            assert head is not None
            assert head.status is CallStatus.WAITING_FOR_APPROVAL
    for run in world.runs.values():
        if run.status.ended:
            assert not [call for call in run.calls if call.status in OPEN]


def requests_are_those_of_waiting_calls(world: World) -> None:
    """Nobody is asked about anything else, and the bound counts exactly those (C-40, C-71)."""
    waiting = [
        (run.session_id, call.approval_id)
        for run in world.runs.values()
        for call in run.calls
        if call.status is CallStatus.WAITING_FOR_APPROVAL
    ]
    raw = world.ledger.raw
    for index in ("approvals", "pending:acme"):
        assert {one.decode() for one in raw.zrange(key(index), 0, -1)} == {approval for _, approval in waiting}
    counted = {sid.decode(): int(count) for sid, count in raw.hgetall(key("asked")).items()}
    sessions = [sid_of(session) for session, _ in waiting]
    assert counted == {sid: sessions.count(sid) for sid in set(sessions)}


def arguments_are_those_of_open_and_unknown_calls(world: World) -> None:
    """Kept while a call is open or its outcome unknown, and no longer (C-83)."""
    unknown = {f"{entry.run_id}:{entry.index}" for entry in world.entries.values() if entry.status is U}
    for name in world.sessions:
        stored = {field.decode() for field in world.ledger.raw.hkeys(key(f"args:{sid_of(name)}"))}
        mine = [run for run in world.runs.values() if run.session_id == name]
        still_open = {f"{run.run_id}:{call.index}" for run in mine for call in run.calls if call.status in OPEN}
        ours = {f"{run.run_id}:{call.index}" for run in mine for call in run.calls}
        assert stored == still_open | (unknown & ours)


def unknowns_are_listed(world: World) -> None:
    """What waits for a person is in the index, and nothing else."""
    listed = {row.decode().rpartition(":")[2] for row in world.ledger.raw.zrange(key("unknowns:acme"), 0, -1)}
    assert listed == {entry.mutation_id for entry in world.entries.values() if entry.status is U}


def counter(ledger: Ledger) -> int:
    """The shard's counter (C-22)."""
    return int(ledger.raw.hget(SEQ, "n"))
