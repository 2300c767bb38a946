"""The invariants over a whole soak: everything is read once, many reads at a time, then judged in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ledger import history
from ledger.approvals import read_approval
from ledger.config import RedisConfig
from ledger.consumer.keys import outcomes_key
from ledger.ids import shard_of_id
from ledger.records import Approval, Entry, Run
from ledger.runs import read_run
from ledger.store import AsyncStore, ScriptCall, StoreSettings
from tests.faults.harness import invariants
from tests.faults.harness.invariants import Evidence, Ledger
from tests.faults.harness.traffic import Acknowledged
from tests.support.checker import SHARDS, TENANT

T = TypeVar("T")
AT_ONCE = 500


@dataclass
class Read:
    """What the store says of everything that was acknowledged."""

    ledger: Ledger
    runs: dict[str, Run | None]


def judge(evidence: Evidence) -> list[str]:
    """I1 to I7 and I9 of a soak that has ended (its doubts are judged where they are made)."""
    found = asyncio.run(_read(evidence))
    found_wrong = [*invariants.one_call(evidence), *invariants.durable_intents(evidence, found.ledger)]
    found_wrong += list(_kept(evidence, found))
    found_wrong += list(_ended(evidence, found))
    found_wrong += invariants.one_end(_without_runs(evidence), found.ledger)
    found_wrong += invariants.fenced(evidence)
    found_wrong += invariants.one_decision(evidence, found.ledger)
    found_wrong += invariants.told_in_order(evidence, found.ledger)
    found_wrong += invariants.secrets_kept(evidence)
    return found_wrong


async def _read(evidence: Evidence) -> Read:
    store = AsyncStore(StoreSettings(RedisConfig(url=evidence.url)))
    await store.open()
    try:
        sessions = await _all(store, [history.read_session(TENANT, name, SHARDS) for name in evidence.acks.sessions])
        entries: dict[str, Entry] = {}
        for session in sessions:
            for turn in session.turns if session else ():
                entries.update((entry.mutation_id, entry) for entry in turn.entries)
        ids = [handed.run_id for handed in evidence.acks.handed if handed.run_id]
        replies = await _all(store, [read_run(_shard(run), run, TENANT) for run in ids])
        runs = {run: reply.run for run, reply in zip(ids, replies, strict=True)}
        of_runs = {call.approval_id for run in runs.values() if run for call in run.calls if call.approval_id}
        asked = sorted(of_runs | evidence.acks.shown)
        rows = await _all(store, [read_approval(_shard(one), TENANT, one) for one in asked])
        approvals: dict[str, Approval | None] = {
            one: row.approvals[0] if row.approvals else None for one, row in zip(asked, rows, strict=True)
        }
        streams = [
            (shard, stream_id.decode(), _pairs(flat))
            for shard in range(SHARDS)
            for stream_id, flat in await store.command("XRANGE", outcomes_key(shard), "-", "+", shard=shard)
        ]
    finally:
        await store.close()
    return Read(Ledger(entries, streams, approvals), runs)


async def _all(store: AsyncStore, calls: Sequence[ScriptCall[T]]) -> list[T]:
    found: list[T] = []
    for at in range(0, len(calls), AT_ONCE):
        found += await asyncio.gather(*(store.run(call) for call in calls[at : at + AT_ONCE]))
    return found


def _kept(evidence: Evidence, found: Read) -> Iterable[str]:
    """I3: every admission and decision that was acknowledged is there."""
    for handed in evidence.acks.handed:
        run = found.runs.get(handed.run_id)
        if run is None:
            yield f"I3: run {handed.run_id} of {handed.delivery} was acknowledged and is gone"
        elif [call.mutation_id for call in run.calls] != handed.mutations:
            yield f"I3: run {handed.run_id} holds other calls than were acknowledged"
    for approval_id in evidence.acks.decisions:
        approval = found.ledger.approvals.get(approval_id)
        if approval is None or approval.state != "approved":
            yield f"I3: approval {approval_id} was told approved, now {approval and approval.state}"


def _ended(evidence: Evidence, found: Read) -> Iterable[str]:
    """I4: every run has ended, and every call of it in one of the ends."""
    for run_id, run in found.runs.items():
        if run is not None and not run.status.ended:
            yield f"I4: run {run_id} has not ended"
        for call in run.calls if run else ():
            if call.status.value not in invariants.ENDED_CALLS:
                yield f"I4: call {call.index} of {run_id} is {call.status.value}"


def _without_runs(evidence: Evidence) -> Evidence:
    return Evidence(evidence.url, evidence.effects, Acknowledged())


def _shard(any_id: str) -> int:
    shard = shard_of_id(any_id, SHARDS)
    assert shard is not None
    return shard


def _pairs(flat: Sequence[Any]) -> dict[str, str]:
    words = [word.decode() for word in flat]
    return dict(zip(words[::2], words[1::2], strict=True))
