"""What is measured and how it is judged: pairs taken side by side, their ratio's median and range, goals."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.bench.drivers import Slice

CALIBRATION = 256
LEAST, MOST = 64, 400_000


@dataclass(frozen=True, slots=True)
class Options:
    """How long and how often: `seconds` a slice, `rounds` pairs a ratio, `only` figures by name (empty: all)."""

    seconds: float = 2.0
    rounds: int = 3
    only: frozenset[str] = frozenset()

    def wants(self, *names: str) -> bool:
        """Whether any of these figures is asked for."""
        return not self.only or any(name in self.only for name in names)


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound: at least or at most `bound`."""

    bound: float
    at_most: bool = False

    def holds(self, value: float) -> bool:
        """Whether `value` keeps it."""
        return value <= self.bound if self.at_most else value >= self.bound

    def __str__(self) -> str:
        return f"{'<=' if self.at_most else '>='} {self.bound:,g}"


@dataclass(slots=True)
class Figure:
    """One line of the result. `values` are ratios or plain numbers, one a round; `pairs` what they were made of."""

    name: str
    title: str
    goal: Goal | None
    unit: str = "x"
    values: list[float] = field(default_factory=list)
    pairs: list[tuple[float, float]] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """The figure."""
        return statistics.median(self.values)

    @property
    def holds(self) -> bool | None:
        """Whether the goal is met; None without one."""
        return None if self.goal is None else self.goal.holds(self.median)

    def as_json(self) -> dict[str, Any]:
        """For the result file."""
        return {
            "name": self.name,
            "title": self.title,
            "unit": self.unit,
            "goal": None if self.goal is None else str(self.goal),
            "holds": self.holds,
            "median": self.median,
            "range": [min(self.values), max(self.values)],
            "values": self.values,
            "pairs": self.pairs,
            "notes": self.notes,
        }


def say(line: str) -> None:
    """Progress, for people."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


Run = Callable[[int], Slice]


def sized(run: Run, seconds: float, first: int = CALIBRATION) -> int:
    """How many units take about `seconds`; what it runs to find out also warms up."""
    rate = run(first).rate
    if first / rate < seconds / 4:
        rate = run(max(first, int(rate * seconds / 4))).rate
    return max(LEAST, min(MOST, int(rate * seconds)))


def side_by_side(
    figure: Figure,
    ours: Run,
    theirs: Run,
    options: Options,
    *,
    counts: tuple[int, int] | None = None,
    value: Callable[[Slice], float] = lambda one: one.rate,
    lower_is_better: bool = False,
) -> Figure:
    """A B A B: each round runs both and takes their ratio, ours over theirs.

    `lower_is_better` only changes how a line reads; the ratio of times is ours over theirs, too.
    """
    ours_count, theirs_count = counts or (sized(ours, options.seconds), sized(theirs, options.seconds))
    for number in range(1, options.rounds + 1):
        other, own = value(theirs(theirs_count)), value(ours(ours_count))
        figure.pairs.append((own, other))
        figure.values.append(own / other)
        unit = "ms" if lower_is_better else "/s"
        shown = f"{own:,.1f}{unit} against {other:,.1f}{unit} = {own / other:.2f}"
        say(f"  {figure.name} {number}/{options.rounds}: {shown}")
    return figure


def plain(figure: Figure, values: Sequence[float]) -> Figure:
    """A figure that is no ratio."""
    figure.values = list(values)
    say(f"  {figure.name}: {figure.median:,.1f} {figure.unit}")
    return figure
