"""The invariants of the fault tests, over what really happened (effect log) and what the ledger says.

Expected: every session name the test used. Mutations are told apart by session, because each test call carries an
argument of its own.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger import history
from ledger.config import RedisConfig
from ledger.consumer.keys import outcomes_key
from ledger.records import Entry
from ledger.states import MutationStatus
from ledger.store import StoreSettings, SyncStore
from tests.support.valkey import ValkeyProcess

TENANT = "acme"
SHARDS = 16
SETTLED = (MutationStatus.COMPLETED, MutationStatus.FAILED, MutationStatus.OUTCOME_UNKNOWN, MutationStatus.APPROVED)


@dataclass(frozen=True, slots=True)
class Found:
    """What the store holds: entries by mutation id, and the stream's records in order."""

    entries: Mapping[str, Entry]
    stream: tuple[Mapping[str, str], ...]

    def statuses(self) -> Counter[str]:
        """How many mutations have each status."""
        return Counter(str(entry.status) for entry in self.entries.values())


def read_ledger(valkey: ValkeyProcess, sessions: Iterable[str]) -> Found:
    """Reads all entries of the sessions, and all outcome streams."""
    return read_ledger_at(valkey.url, sessions)


def read_ledger_at(url: str, sessions: Iterable[str]) -> Found:
    """The same for a store of any kind, by its URL."""
    store = SyncStore(StoreSettings(RedisConfig(url=url)))
    entries: dict[str, Entry] = {}
    for session_id in sessions:
        session = store.run(history.read_session(TENANT, session_id, SHARDS))
        for turn in session.turns if session else ():
            for entry in turn.entries:
                assert entry.mutation_id not in entries, "test mutations must differ between deliveries"
                entries[entry.mutation_id] = entry
    streams = store.command([["XRANGE", outcomes_key(shard), "-", "+"] for shard in range(SHARDS)])
    store.close()
    return Found(entries, tuple(_fields(flat) for stream in streams for _, flat in stream))


def _fields(flat: Sequence[bytes]) -> Mapping[str, str]:
    words = [word.decode() for word in flat]
    return dict(zip(words[::2], words[1::2], strict=True))


def check(effects: Iterable[Mapping[str, Any]], found: Found) -> None:
    """I1, I2, I4 and I6 of the fault tests; fails naming the first mutation that breaks one."""
    effects = list(effects)
    check_effects(effects, found)
    check_stream(found)


def check_effects(effects: list[Mapping[str, Any]], found: Found) -> None:
    """One call an attempt and a mutation, each with its intent; `completed` never lacks its effect."""
    by_attempt = Counter(effect["attempt"] for effect in effects)
    assert max(by_attempt.values(), default=1) == 1, f"an attempt was dispatched twice: {by_attempt.most_common(1)}"
    happened = Counter(effect["mutation_id"] for effect in effects)
    for mutation, times in happened.items():
        assert mutation in found.entries, f"effect without intent: {mutation}"
        assert times == 1, f"{mutation} happened {times} times: {found.entries[mutation]}"
    for mutation, entry in found.entries.items():
        assert entry.status in SETTLED, f"no outcome: {entry}"
        if entry.status is MutationStatus.COMPLETED:
            assert happened[mutation] == 1, f"completed without its effect: {entry}"
        if entry.status is MutationStatus.APPROVED:
            assert happened[mutation] == 0, f"not executed, but it happened: {entry}"


def check_stream(found: Found) -> None:
    """Revisions rise per turn, nothing is published twice, and the last record is what the ledger says."""
    revisions: dict[str, int] = defaultdict(int)
    last: dict[str, str] = {}
    for row in found.stream:
        turn, revision = row["logical_turn_id"], int(row["mutation_revision"])
        assert revision > revisions[turn], f"revision {revision} after {revisions[turn]} in {turn}"
        revisions[turn] = revision
        last[row["mutation_id"]] = row["record"]
    for mutation, entry in found.entries.items():
        assert json.loads(last[mutation]) == entry.outcome(), f"the stream's last word differs: {entry}"
