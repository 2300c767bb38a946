"""Counters that live in the store, because what counts them has no page of its own to show them on.

Rare things are counted by the script that does them, in the same atomic step; how attempts end is counted by each
worker in memory and added now and then, so that nothing is added to a mutation's path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ledger.states import MUTATION_BY_CODE, MutationStatus
from ledger.store.call import ScriptCall
from ledger.store.codec import pack

ATTEMPTS = "attempts"
"""`attempts:<verdict>`: attempts that ended, by what they reported."""
LATE_REPORTS = "late_reports"
"""`late_reports:<c|f|u|a>`: reports of attempts that somebody had reconciled before (C-91)."""
READBACKS = "readbacks"
"""`readbacks:<answer>`: answers of registered readbacks."""
RECLAIMED = "reclaimed"
"""Sessions taken from owners that disappeared (C-33)."""
REPEAT_MS = 3_600_000


def add_counts(process: str, number: int, counts: Mapping[str, int]) -> ScriptCall[Literal[True]]:
    """Adds what `process` counted; the report with this number is added once, however often it is sent (C-22)."""
    request = {"p": process, "q": number, "c": dict(counts), "ls": REPEAT_MS}
    return ScriptCall.of("add_counts", 0, pack(request), decode=lambda _: True)


@dataclass(frozen=True, slots=True)
class Standing:
    """What the store holds now, summed over shards. `counts` by kind and label; a label may be empty."""

    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    ready: int = 0
    owned: int = 0
    pending: int = 0
    unknown: int = 0

    @property
    def late_reports(self) -> Mapping[str, int]:
        """Late reports by the published name of what they said."""
        return {_verdict(code): count for code, count in self.counts.get(LATE_REPORTS, {}).items()}


def counts_key(shard: int) -> str:
    """The hash that holds a shard's counters."""
    return f"ml:{{{shard:02x}}}:counts"


def standing_commands(shards: int, tenants: Sequence[str]) -> list[list[str]]:
    """The plain reads that `standing` makes sense of, `4 + len(tenants)` a shard."""
    commands = []
    for shard in range(shards):
        prefix = f"ml:{{{shard:02x}}}:"
        commands.append(["HGETALL", counts_key(shard)])
        zsets = ["ready", "owned", "approvals", *(f"unknowns:{tenant}" for tenant in tenants)]
        commands += [["ZCARD", prefix + name] for name in zsets]
    return commands


def standing(replies: Sequence[Any], tenants: Sequence[str]) -> Standing:
    """Sums the replies to `standing_commands`."""
    width = 4 + len(tenants)
    rows = [replies[at : at + width] for at in range(0, len(replies), width)]
    sizes = [sum(column) for column in zip(*(row[1:] for row in rows), strict=True)]
    ready, owned, pending, *unknowns = sizes
    return Standing(summed(row[0] for row in rows), ready, owned, pending, sum(unknowns))


def summed(hashes: Iterable[Any]) -> dict[str, dict[str, int]]:
    """Counters of several shards, as HGETALL answers them (a mapping, or names and values in turn)."""
    found: dict[str, Counter[str]] = {}
    for answer in hashes:
        pairs = answer.items() if isinstance(answer, Mapping) else zip(answer[::2], answer[1::2], strict=True)
        for name, value in pairs:
            kind, _, label = _text(name).partition(":")
            found.setdefault(kind, Counter())[label] += int(value)
    return {kind: dict(labels) for kind, labels in found.items()}


def _text(name: bytes | str) -> str:
    return name if isinstance(name, str) else name.decode()


def _verdict(code: str) -> str:
    status = MUTATION_BY_CODE[code]
    return "not_executed" if status is MutationStatus.APPROVED else status.value
