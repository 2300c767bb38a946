"""What the runs of `make faults` came to, kept on disk so that a second call goes on; and the table of it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.harness.tally import Tally
from tests.faults.table import Row

ROOT = Path(__file__).parents[2]
PARTS = ("ledger", "service", "workers", "tests/faults", "tests/support")
HEAD = ("row", "fault", "runs", "faults injected", "mutations", "violations")


@dataclass(frozen=True)
class Run:
    """One row with one seed."""

    row: str
    seed: int
    seconds: float
    tally: Tally


def code_digest(root: Path = ROOT) -> str:
    """Names the code that is tested; results of other code say nothing about it."""
    digest = hashlib.sha256()
    for part in PARTS:
        for path in sorted((root / part).rglob("*")):
            if path.suffix in (".py", ".lua", ".c", ".json") and path.is_file():
                digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


class Results:
    """The runs so far of this code, in a file; those of other code are forgotten."""

    def __init__(self, file: Path, code: str) -> None:
        self._file = file
        self._code = code
        self.runs: list[Run] = []
        stored = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        if stored.get("code") == code:
            self.runs = [Run(**{**one, "tally": Tally(**one["tally"])}) for one in stored["runs"]]

    def add(self, run: Run) -> None:
        """Keeps a run, on disk too; it takes the place of an earlier one."""
        self.runs = [one for one in self.runs if (one.row, one.seed) != (run.row, run.seed)] + [run]
        text = json.dumps({"code": self._code, "runs": [_as_json(one) for one in self.runs]}, indent=1)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        draft = self._file.with_suffix(".draft")
        draft.write_text(text, encoding="utf-8")
        draft.replace(self._file)

    def has(self, row: str, seed: int) -> bool:
        """Whether this run is done and found nothing."""
        return any((one.row, one.seed) == (row, seed) and not one.tally.violations for one in self.runs)


def _as_json(run: Run) -> dict[str, Any]:
    return {"row": run.row, "seed": run.seed, "seconds": round(run.seconds, 1), "tally": run.tally.as_json()}


def table(rows: Iterable[Row], runs: Sequence[Run]) -> str:
    """A Markdown table, a line a row, with the sum of everything as its last."""
    lines: list[tuple[str, ...]] = [HEAD]
    for row in rows:
        mine = [run for run in runs if run.row == row.name]
        lines.append((row.name, row.what, *_cells(mine)))
    lines.append(("all", "", *_cells(runs)))
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    text = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    text.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(text)


def _cells(runs: Sequence[Run]) -> tuple[str, str, str, str]:
    faults: Counter[str] = Counter()
    for run in runs:
        faults.update(run.tally.faults)
    mutations = sum(run.tally.mutations for run in runs)
    violations = sum(len(run.tally.violations) for run in runs)
    return str(len(runs)), _faults(faults), f"{mutations:,}", str(violations)


def _faults(faults: Mapping[str, int]) -> str:
    return ", ".join(f"{times:,} {kind}" for kind, times in sorted(faults.items(), key=lambda one: -one[1])) or "-"


def promises(rows: Iterable[Row], runs: Sequence[Run]) -> list[str]:
    """How many answers said that something is on record, and how many of those were lost, a line a row."""
    lines = []
    for row in rows:
        mine = [run.tally for run in runs if run.row == row.name]
        told = sum(tally.acknowledged for tally in mine)
        lost = sum(violation.startswith("I3") for tally in mine for violation in tally.violations)
        if told:
            lines.append(f"row {row.name}: {told:,} answers that something is on record, {lost} of them lost")
    return lines


def figures(runs: Sequence[Run]) -> list[str]:
    """What rows measured, a line a run."""
    return [f"row {run.row}, seed {run.seed}: {json.dumps(run.tally.figures)}" for run in runs if run.tally.figures]
