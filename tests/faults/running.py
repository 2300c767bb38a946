"""Plays rows with several stacks at once, each run in a process of its own, until all are done or time is up."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ledger.supervise.child import command_line
from tests.faults.harness.tally import Tally
from tests.faults.results import ROOT, Results, Run
from tests.faults.table import Row
from tests.support.wait import PATIENCE_VARIABLE, wait_until

Job = tuple[Row, int]
COMMAND = [sys.executable, "-m", "tests.faults", "one"]
LEAST_BOUND = 300.0
PATIENCE = 3.0


@dataclass
class Limits:
    """So many runs at once, and no new one after so many seconds."""

    parallel: int = 3
    seconds: float = 1800.0


@dataclass
class _Child:
    job: Job
    folder: Path
    process: subprocess.Popen[bytes]
    began: float = field(default_factory=time.monotonic)

    @property
    def bound(self) -> float:
        """A run that takes so long hangs."""
        return LEAST_BOUND + 8 * self.job[0].seconds


def jobs(rows: Sequence[Row], results: Results) -> list[Job]:
    """What is still to be run: every row's first seed, then every row's second, and so on; long ones first."""
    rounds = max((len(row.runs()) for row in rows), default=0)
    longest_first = sorted(rows, key=lambda row: -row.seconds)
    # A row with many seeds begins early, so that it does not end the whole alone.
    spread = [(at * rounds / len(row.runs()), row, seed) for row in longest_first for at, seed in enumerate(row.runs())]
    ordered = sorted(spread, key=lambda one: one[0])
    return [(row, seed) for _, row, seed in ordered if not results.has(row.name, seed)]


class Runner:
    """Runs jobs in children below `home`; the folder of a run that found something stays there."""

    def __init__(self, home: Path, results: Results, say: Callable[[str], None]) -> None:
        self._home = home
        self._results = results
        self._say = say
        self._children: list[_Child] = []
        self._done = 0

    def run(self, left: list[Job], limits: Limits) -> list[Job]:
        """Runs them; answers those that there was no time for."""
        end, total = time.monotonic() + limits.seconds, len(left)
        left = list(left)
        try:
            while left or self._children:
                while left and len(self._children) < limits.parallel and _fits(left[0], end):
                    self._start(left.pop(0))
                if not self._children:
                    break
                wait_until(lambda: any(_over(child) for child in self._children), 7200, "a run to end")
                for child in [child for child in self._children if _over(child)]:
                    self._children.remove(child)
                    self._end(child, total)
        finally:
            for child in self._children:
                _kill(child)
        return left

    def _start(self, job: Job) -> None:
        row, seed = job
        folder = self._home / f"{row.name.replace(' ', '-')}-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = [*COMMAND, row.name, str(seed), "--folder", str(folder)]
        with (folder / "run.log").open("wb") as log:
            # Bound to this process, as its stacks are bound to it: nothing is left when somebody stops the whole.
            command = command_line(command)
            env = {**os.environ, PATIENCE_VARIABLE: str(PATIENCE)}
            process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log, start_new_session=True)
        self._children.append(_Child(job, folder, process))

    def _end(self, child: _Child, total: int) -> None:
        row, seed = child.job
        seconds = time.monotonic() - child.began
        _kill(child)
        tally = read_tally(child.folder)
        if tally is None:
            why = "hangs" if seconds >= child.bound else f"ended with {child.process.returncode}"
            tally = Tally(violations=[f"harness: the run {why}; see {child.folder / 'run.log'}"])
        self._results.add(Run(row.name, seed, seconds, tally))
        self._done += 1
        found = f"{len(tally.violations)} VIOLATIONS" if tally.violations else "ok"
        line = f"{tally.injected} faults, {tally.mutations} mutations, {seconds:.0f} s"
        self._say(f"{self._done}/{total}  row {row.name}, seed {seed}: {found}; {line}")
        for violation in tally.violations[:5]:
            self._say(f"    {violation}")
        if tally.violations:
            self._say(f"    kept in {child.folder}; again: python -m tests.faults one '{row.name}' {seed}")
        else:
            shutil.rmtree(child.folder, ignore_errors=True)


def _fits(job: Job, end: float) -> bool:
    return time.monotonic() + job[0].seconds <= end


def _over(child: _Child) -> bool:
    return child.process.poll() is not None or time.monotonic() - child.began > child.bound


def _kill(child: _Child) -> None:
    """Ends the run and what it started."""
    if child.process.poll() is None:
        os.killpg(child.process.pid, signal.SIGKILL)
    child.process.wait(10)


def write_tally(folder: Path, tally: Tally) -> None:
    """Leaves what a run came to for its parent."""
    (folder / "tally.json").write_text(json.dumps(tally.as_json()), encoding="utf-8")


def read_tally(folder: Path) -> Tally | None:
    """What a run left, None if it did not come so far."""
    file = folder / "tally.json"
    return Tally(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None
