"""The fault matrix, small: every row, every named point; `make faults` plays it whole."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.faults.boundaries import ALL, FRONT_DOOR, WORKER
from tests.faults.harness.tally import Tally
from tests.faults.rows import kills, store
from tests.faults.table import ROWS, Row, row

KILLS, POWER_LOSSES = 50, 5
SECONDS_A_ROW = 300


@dataclass(frozen=True)
class Small:
    """One small run of a row."""

    row: Row
    seed: int

    @property
    def name(self) -> str:
        """For test ids and folders."""
        return f"{self.row.name.replace(' ', '-')}-{self.seed}"

    @property
    def options(self) -> dict[str, Any]:
        """What the row is played with."""
        return {**self.row.whole, **self.row.small[self.seed - 1]}

    def play(self, folder: Path) -> Tally:
        """Plays it in a folder of its own."""
        print(f"row {self.row.name}, seed {self.seed}, {self.options}")
        return self.row.play(folder / self.name, self.seed, **self.options)


SMALL = [Small(row, number + 1) for row in ROWS for number in range(len(row.small))]
WAITING = [small for small in SMALL if small.row.waits]
BUSY = [small for small in SMALL if not small.row.waits]


@pytest.mark.acceptance
@pytest.mark.timeout(SECONDS_A_ROW)
@pytest.mark.parametrize("small", BUSY, ids=lambda small: small.name)
def test_row(small: Small, tmp_path: Path) -> None:
    tally = small.play(tmp_path)
    assert tally.violations == []
    assert tally.injected


@pytest.mark.acceptance
@pytest.mark.timeout(SECONDS_A_ROW)
def test_rows_that_mostly_wait(tmp_path: Path) -> None:
    with ThreadPoolExecutor(len(WAITING)) as pool:
        tallies = dict(
            zip([small.name for small in WAITING], pool.map(lambda small: small.play(tmp_path), WAITING), strict=True)
        )
    assert {name: tally.violations for name, tally in tallies.items() if tally.violations} == {}
    assert all(tally.injected for tally in tallies.values())


def test_every_row_is_played_small() -> None:
    played = {number for small in SMALL for number in small.row.numbers}
    assert played == {number for row in ROWS for number in row.numbers} >= set(range(1, 19))


def test_every_named_point_kills_and_there_are_enough() -> None:
    played = [small for small in SMALL if small.row.play in (kills.kill_at_every_point, kills.kill_front_doors)]
    points = [small.options.get("points", FRONT_DOOR) for small in played]
    assert {point for some in points for point in some} == ALL
    times = [small.options.get("times", 1) for small in played]
    assert sum(len(some) * each for some, each in zip(points, times, strict=True)) >= KILLS
    mixed = [small.options for small in SMALL if small.row.play is store.one_after_the_other]
    assert sum(options["losses"] for options in mixed) >= POWER_LOSSES


def test_the_seeds_of_row_11_cut_at_every_byte() -> None:
    torn_tail = row("11")
    assert {seed % torn_tail.whole["step"] for seed in torn_tail.runs()} == set(range(torn_tail.whole["step"]))


def test_make_faults_kills_often_enough() -> None:
    seeds = {row.play: len(row.runs()) for row in ROWS if row.name in ("1", "1 doors", "6", "5-10 mixed")}
    doors = len(FRONT_DOOR) * row("1 doors").whole["times"]
    assert len(WORKER) * seeds[kills.kill_at_every_point] + doors * seeds[kills.kill_front_doors] >= 10 * KILLS
    assert 5 * (seeds[store.lose_power] + seeds[store.one_after_the_other]) >= 10 * POWER_LOSSES
