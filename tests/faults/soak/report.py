"""The figures of a soak, and which of them are violations."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.faults.harness.world import LEASE
from tests.faults.soak.gauges import Sample

RECOVERY_BOUND = LEASE + 5.0
FLAT = 1.10
# Connections come and go with what is under way: a front door takes over what another one had. A leak would be more.
FILES_MORE = 64
MB = 1 << 20
STORE = "store bytes a mutation"
# With fewer, what the store holds for its own sake still counts.
STORE_FROM = 5_000


@dataclass
class Report:
    """What a soak came to."""

    mutations: int
    seconds: float
    kills: dict[str, int]
    recovered: dict[str, list[float]]
    figures: dict[str, Any] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        return asdict(self)


def judge_figures(samples: Sequence[Sample], mutations: int, *, flat: bool, report: Report) -> None:
    """Recovery in time; with `flat`, nothing grew between a tenth of the soak and its end."""
    report.figures["mutations/s"] = round(report.mutations / report.seconds, 1)
    _judge_recovery(report)
    early = [one for one in samples if 0.08 <= one.mutations / mutations <= 0.12]
    late = [one for one in samples if one.mutations / mutations >= 0.95]
    if early and late:
        grown = [*_memory(samples[0], early, late, report), *_counts(early, late, report)]
        _judge_ages(samples, early, late, report)
    else:
        grown = ["soak: too short to say whether anything grows"]
    report.violations += grown if flat else []


def _judge_recovery(report: Report) -> None:
    times = [seconds for kind in report.recovered.values() for seconds in kind]
    if not times:
        return
    report.figures["recovery s"] = {"median": round(statistics.median(times), 2), "max": max(times)}
    if max(times) >= RECOVERY_BOUND:
        report.violations.append(f"soak: a kill took {max(times)} s to recover from")


def _memory(first: Sample, early: Sequence[Sample], late: Sequence[Sample], report: Report) -> list[str]:
    """Processes that lived through it all, in MB. The store keeps everything for its retention: bytes a mutation."""
    pairs = {f"{who} MB": tuple(_middle(part, f"{who}_bytes") / MB for part in (early, late)) for who in WHO}
    if _middle(early, "mutations") - first.mutations >= STORE_FROM:
        pairs[STORE] = tuple(
            (_middle(part, "store_bytes") - first.store_bytes) / (_middle(part, "mutations") - first.mutations)
            for part in (early, late)
        )
    grown = []
    for name, (before, after) in pairs.items():
        report.figures[name] = {"10 %": round(before, 1), "100 %": round(after, 1)}
        if after > before * FLAT:
            grown.append(f"soak: {name} grew from {before:.1f} to {after:.1f}")
    return grown


WHO = ("worker", "door")
COUNTS = ("worker_files", "door_files", "store_files", "rq_keys")


def _counts(early: Sequence[Sample], late: Sequence[Sample], report: Report) -> list[str]:
    grown = []
    for name in COUNTS:
        before, after = _middle(early, name), _middle(late, name)
        report.figures[name.replace("_", " ")] = {"10 %": before, "100 %": after}
        if after > before + FILES_MORE:
            grown.append(f"soak: {name} grew from {before} to {after}")
    return grown


def _judge_ages(samples: Sequence[Sample], early: Sequence[Sample], late: Sequence[Sample], report: Report) -> None:
    parts = {"10 %": early, "100 %": late, "whole": samples}
    ages = {name: round(max(one.queue_age for one in part), 1) for name, part in parts.items()}
    report.figures["oldest in the queue s"] = ages
    if ages["whole"] > RECOVERY_BOUND:
        report.violations.append(f"soak: a session waited {ages['whole']} s, longer than a recovery takes")


def _middle(samples: Sequence[Sample], name: str) -> float:
    return float(statistics.median(getattr(one, name) for one in samples))
