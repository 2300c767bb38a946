"""Invariants I1 to I9 over evidence alone: the tools' log, the API, the ledger and its history, the streams, the logs.

Each check answers what it found wrong, one line each; an empty list is what a test wants to see.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ledger import history
from ledger.approvals import read_approval
from ledger.config import RedisConfig
from ledger.consumer.keys import floor_key, outcomes_key
from ledger.consumer.outcome import Outcome
from ledger.ids import shard_of_id
from ledger.records import Approval, Entry
from ledger.runs import read_run
from ledger.states import MutationStatus
from ledger.store import StoreSettings, SyncStore
from tests.faults.harness import aof
from tests.faults.harness.traffic import Acknowledged
from tests.support.checker import SHARDS, TENANT

ENDED_CALLS = frozenset(
    {"completed", "failed", "denied", "expired", "not_executed", "outcome_unknown", "refused", "skipped", "cancelled"}
)
SETTLED = {
    MutationStatus.COMPLETED,
    MutationStatus.FAILED,
    MutationStatus.OUTCOME_UNKNOWN,
    MutationStatus.APPROVED,
}
# Nobody knew, and then the very attempt reported (C-10).
MAY_BECOME = {"outcome_unknown": {"completed", "failed", "not_executed"}}


@dataclass(frozen=True)
class Doubt:
    """A time in which the store could not promise, on the machine's monotonic clock."""

    start: float
    end: float


@dataclass
class Evidence:
    """What a run left behind. `histories` are the directories of every server that ever ran here."""

    url: str
    effects: Sequence[Mapping[str, Any]]
    acks: Acknowledged
    heard: Sequence[Outcome] = ()
    gaps: int = 0
    doubts: Sequence[Doubt] = ()
    histories: Sequence[Path] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    secrets: Sequence[str] = ()


@dataclass
class Ledger:
    """What the store says: entries by mutation id, the outcome streams, approvals that were asked for.

    `trimmed`: shards whose stream does not begin at its beginning any more.
    """

    entries: dict[str, Entry]
    streams: list[tuple[int, str, dict[str, str]]]
    approvals: dict[str, Approval | None]
    trimmed: frozenset[int] = frozenset()


def read(evidence: Evidence) -> Ledger:
    """Reads the ledger of every session that traffic used, and the approvals of its runs."""
    store = SyncStore(StoreSettings(RedisConfig(url=evidence.url)))
    try:
        entries: dict[str, Entry] = {}
        for session_id in evidence.acks.sessions:
            session = store.run(history.read_session(TENANT, session_id, SHARDS))
            for turn in session.turns if session else ():
                entries.update((entry.mutation_id, entry) for entry in turn.entries)
        approvals: dict[str, Approval | None] = {}
        for approval_id in _asked(evidence.acks):
            shard = shard_of_id(approval_id, SHARDS)
            assert shard is not None
            rows = store.run(read_approval(shard, TENANT, approval_id)).approvals
            approvals[approval_id] = rows[0] if rows else None
        raw = store.command([["XRANGE", outcomes_key(shard), "-", "+"] for shard in range(SHARDS)])
        floors = store.command([["GET", floor_key(shard)] for shard in range(SHARDS)])
    finally:
        store.close()
    streams = [
        (shard, stream_id.decode(), _pairs(flat)) for shard, stream in enumerate(raw) for stream_id, flat in stream
    ]
    trimmed = frozenset(shard for shard, floor in enumerate(floors) if floor is not None)
    return Ledger(entries, streams, approvals, trimmed)


def check_all(evidence: Evidence, *, ended: bool = True) -> list[str]:
    """Every invariant that the evidence allows to judge; `ended` says that nothing is under way any more."""
    ledger = read(evidence)
    found = [*one_call(evidence), *durable_intents(evidence, ledger), *kept_promises(evidence, ledger)]
    found += fenced(evidence)
    found += no_dispatch_in_doubt(evidence)
    found += secrets_kept(evidence)
    if ended:
        found += one_end(evidence, ledger)
        found += one_decision(evidence, ledger)
        found += told_in_order(evidence, ledger)
    return found


def one_call(evidence: Evidence) -> list[str]:
    """I1: the tool was entered at most once an attempt and, without a reconciliation between, once a mutation."""
    attempts = Counter(effect["attempt"] for effect in evidence.effects)
    mutations = Counter(effect["mutation_id"] for effect in evidence.effects)
    found = [f"I1: attempt {attempt} was dispatched {times} times" for attempt, times in attempts.items() if times > 1]
    found += [f"I1: mutation {name} happened {times} times" for name, times in mutations.items() if times > 1]
    return found


def durable_intents(evidence: Evidence, ledger: Ledger) -> list[str]:
    """I2: whatever happened has its intent in the ledger, with the attempt's own fencing."""
    missing = {effect["mutation_id"] for effect in evidence.effects} - ledger.entries.keys()
    return [f"I2: {mutation} happened without a durable intent" for mutation in sorted(missing)]


def kept_promises(evidence: Evidence, ledger: Ledger) -> list[str]:
    """I3: admissions, decisions and statuses that anybody was told are still there."""
    found: list[str] = []
    runs = {handed.run_id: handed for handed in evidence.acks.handed if handed.run_id}
    store = SyncStore(StoreSettings(RedisConfig(url=evidence.url)))
    try:
        found += _lost_runs(store, runs)
        found += _lost_statuses(store, evidence.acks)
    finally:
        store.close()
    for approval_id, decision in evidence.acks.decisions.items():
        approval = ledger.approvals.get(approval_id)
        wanted = {"approve": "approved", "deny": "denied"}[decision]
        if approval is None or approval.state != wanted:
            found.append(f"I3: approval {approval_id} was told {wanted}, now {approval and approval.state}")
    return found


def one_end(evidence: Evidence, ledger: Ledger) -> list[str]:
    """I4: every admitted call has one end, every entry an outcome that agrees with what the tool saw."""
    found: list[str] = []
    happened = {effect["mutation_id"] for effect in evidence.effects}
    for handed in evidence.acks.handed:
        found += [
            f"I4: call {call['index']} of {handed.run_id} is {call['status']}"
            for call in handed.ended.get("calls", ())
            if call["status"] not in ENDED_CALLS
        ]
        if handed.run_id and not handed.ended:
            found.append(f"I4: run {handed.run_id} has not ended")
    for mutation, entry in ledger.entries.items():
        if entry.status not in SETTLED:
            found.append(f"I4: {mutation} is {entry.status}")
        elif entry.status in (MutationStatus.COMPLETED, MutationStatus.FAILED) and mutation not in happened:
            found.append(f"I4: {mutation} is {entry.status} and never happened")
        elif entry.status is MutationStatus.APPROVED and mutation in happened:
            found.append(f"I4: {mutation} is not executed, and it happened")
    return found


def fenced(evidence: Evidence) -> list[str]:
    """I5: in the store's own history no intent was written but by the owner, and tokens only grow."""
    return [f"I5: {line}" for folder in evidence.histories for line in aof.owners(folder).violations]


def told_in_order(evidence: Evidence, ledger: Ledger) -> list[str]:
    """I6: streams hold rising revisions per turn and end with what the ledger says; the reader saw it all."""
    found: list[str] = []
    revisions: dict[str, int] = defaultdict(int)
    last: dict[str, Any] = {}
    for _, stream_id, row in ledger.streams:
        turn, revision = row["logical_turn_id"], int(row["mutation_revision"])
        if revision <= revisions[turn]:
            found.append(f"I6: {stream_id} has revision {revision} after {revisions[turn]}")
        revisions[turn] = revision
        last[row["mutation_id"]] = json.loads(row["record"])
    for mutation, entry in ledger.entries.items():
        if mutation not in last and shard_of_id(entry.logical_turn_id, SHARDS) in ledger.trimmed:
            continue
        if last.get(mutation) != entry.outcome():
            found.append(f"I6: the stream's last word on {mutation} is {last.get(mutation)}")
    if evidence.gaps == 0 and evidence.heard:
        found += _missed(evidence.heard, ledger)
    return found


def one_decision(evidence: Evidence, ledger: Ledger) -> list[str]:
    """I7: what a person had to approve happened under one approval of its own, given by somebody entitled."""
    found: list[str] = []
    by_mutation: dict[str, list[Approval]] = defaultdict(list)
    for approval in ledger.approvals.values():
        if approval is not None and approval.state == "approved":
            by_mutation[approval.mutation_id].append(approval)
    for effect in evidence.effects:
        if effect["tool"] != "ask_act":
            continue
        given = by_mutation.get(effect["mutation_id"], [])
        if not given:
            found.append(f"I7: {effect['mutation_id']} happened without an approval")
        found += [
            f"I7: {approval.approval_id} was given by {approval.decided_by}, who asked for it"
            for approval in given
            if approval.decided_by in (approval.requested_by, approval.user)
        ]
    return found


def no_dispatch_in_doubt(evidence: Evidence) -> list[str]:
    """I8: no tool was entered while the store could not promise."""
    return [
        f"I8: {effect['mutation_id']} was dispatched {effect['entered'] - doubt.start:.3f} s into a doubt"
        for effect in evidence.effects
        for doubt in evidence.doubts
        if doubt.start < effect["entered"] < doubt.end
    ]


def secrets_kept(evidence: Evidence) -> list[str]:
    """I9: no argument text and no token in logs, metrics or RQ's keys."""
    return [
        f"I9: {secret.split('-')[0]}... can be read in {name}"
        for name, text in evidence.texts.items()
        for secret in evidence.secrets
        if secret in text
    ]


def _asked(acks: Acknowledged) -> set[str]:
    # A run whose admission nobody heard of may have been approved and made its calls before the delivery came again.
    calls = [call for handed in acks.handed for call in handed.ended.get("calls", ())]
    return {call["approval_id"] for call in calls if call.get("approval_id")} | acks.decisions.keys() | acks.shown


def _lost_runs(store: SyncStore, runs: Mapping[str, Any]) -> Iterable[str]:
    for run_id, handed in runs.items():
        shard = shard_of_id(run_id, SHARDS)
        assert shard is not None
        run = store.run(read_run(shard, run_id, TENANT)).run
        if run is None:
            yield f"I3: run {run_id} of {handed.delivery} was acknowledged and is gone"
        elif handed.mutations and [call.mutation_id for call in run.calls][: len(handed.mutations)] != handed.mutations:
            yield f"I3: run {run_id} holds other calls than were acknowledged"


def _lost_statuses(store: SyncStore, acks: Acknowledged) -> Iterable[str]:
    now: dict[str, list[str]] = {}
    for told in acks.told:
        if told.status not in ENDED_CALLS:
            continue
        if told.run_id not in now:
            shard = shard_of_id(told.run_id, SHARDS)
            assert shard is not None
            run = store.run(read_run(shard, told.run_id, TENANT)).run
            now[told.run_id] = [call.status.value for call in run.calls] if run else []
        known = now[told.run_id]
        if told.index >= len(known) or known[told.index] not in {told.status, *MAY_BECOME.get(told.status, ())}:
            yield f"I3: call {told.index} of {told.run_id} was told {told.status}, now {known[told.index :][:1]}"


def _missed(heard: Sequence[Outcome], ledger: Ledger) -> Iterable[str]:
    # Dictionaries keep the order of first sight, and a soak's are large.
    by_shard: dict[int, dict[str, None]] = defaultdict(dict)
    for outcome in heard:
        if outcome.stream_id is not None:
            by_shard[outcome.shard].setdefault(outcome.stream_id)
    stored: dict[int, list[str]] = defaultdict(list)
    for shard, stream_id, _ in ledger.streams:
        stored[shard].append(stream_id)
    for shard, ids in stored.items():
        if list(by_shard[shard]) != ids:
            missing = [one for one in ids if one not in by_shard[shard]]
            yield f"I6: the reader of shard {shard} missed {missing[:3]} or saw them out of order"


def _pairs(flat: Sequence[bytes]) -> dict[str, str]:
    words = [word.decode() for word in flat]
    return dict(zip(words[::2], words[1::2], strict=True))
