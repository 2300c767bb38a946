"""Instructions that the store runs for each step of the path, counted with callgrind: the same on a busy machine.

`python -m tests.bench.instructions`; needs valgrind. Steps are run one at a time, in fresh sessions, on a warm server.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ledger import ownership
from ledger.admission import Admitted
from ledger.attempts import Work
from ledger.runs import read_run
from tests.support.publishing import Publisher, session_in
from tests.support.valkey import VALKEY, ValkeyProcess

SHARD = 3
WARM_UP = 20
START_SECONDS = 120.0
Step = Callable[[], object]


class Counted:
    """A server under callgrind. `of` counts what it runs while something is done."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        wrapper = directory / "valkey-under-callgrind"
        options = f"--tool=callgrind --callgrind-out-file={directory}/out --instr-atstart=no"
        # Only what commands do: a server under callgrind is so slow that its clock would count for more than a step.
        options += " --collect-atstart=no --toggle-collect=processCommand"
        wrapper.write_text(f'#!/bin/sh\nexec valgrind -q {options} {VALKEY} "$@"\n')
        wrapper.chmod(0o755)
        self.server = ValkeyProcess(directory / "store", binary=str(wrapper))
        self._dumps = 0

    def _control(self, *arguments: str) -> None:
        subprocess.run(["callgrind_control", *arguments, str(self.server.pid)], check=True, capture_output=True)

    def begin(self) -> None:
        """From here on instructions are counted, which makes the server slow."""
        self._control("--instr=on")

    def of(self, work: Step) -> int:
        """Instructions that the server ran while `work` was done."""
        self._control("--zero")
        work()
        self._dumps += 1
        self._control("--dump")
        text = (self._directory / f"out.{self._dumps}").read_text()
        found = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
        assert found is not None, "callgrind wrote no total"
        return int(found[1])


def measure(directory: Path, rounds: int) -> dict[str, float]:
    """Thousand instructions of each step."""
    counted = Counted(directory)
    counted.server.start(START_SECONDS)
    try:
        publisher = Publisher(counted.server.url)
        for _ in range(WARM_UP):
            publisher.publish(SHARD, 2)
        counted.begin()
        path = _Path(publisher)
        found = {name: sum(counted.of(step) for step in steps) for name, steps in path.steps(rounds).items()}
        publisher.close()
        return {name: total / rounds / 1000 for name, total in found.items()}
    finally:
        counted.server.stop()


class _Path:
    """One way through the ledger for many sessions, a step at a time for all of them."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._admitted: list[Admitted] = []
        self._claimed: list[ownership.Claimed] = []
        self._work: list[Work | None] = []

    def steps(self, rounds: int) -> dict[str, list[Step]]:
        """What is counted, by name, in the order in which it has to be done."""
        sessions = [session_in(SHARD) for _ in range(rounds)]
        return {
            "admission to a new session": [partial(self._admit, one) for one in sessions],
            "admission to a session at work": [partial(self._admit, one) for one in sessions],
            "claim with the first intent": [self._claim for _ in sessions],
            "settlement with the next intent": [partial(self._settle, n, 2) for n in range(rounds)],
            "settlement with nothing left": [partial(self._settle, n, 3) for n in range(rounds)],
            "reading a run's end": [partial(self._read, n) for n in range(rounds)],
        }

    def _admit(self, session: str) -> None:
        self._admitted.append(self._publisher.admit(session))

    def _claim(self) -> None:
        (claimed,) = self._publisher.begin(SHARD, 1)
        self._claimed.append(claimed)
        self._work.append(claimed.work)

    def _settle(self, n: int, step: int) -> None:
        self._work[n] = self._publisher.settle_one(SHARD, self._claimed[n], self._work[n], step)

    def _read(self, n: int) -> None:
        run = self._publisher.store.run(read_run(SHARD, self._admitted[n].run_id, "acme")).run
        assert run is not None
        assert run.status.ended


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--keep", type=Path, help="directory to leave callgrind's files in")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed: apt-get install valgrind")
    directory = options.keep or Path(tempfile.mkdtemp(prefix="instructions-"))
    directory.mkdir(parents=True, exist_ok=True)
    try:
        for name, thousands in measure(directory, options.rounds).items():
            print(f"{name:34} {thousands:8,.0f} thousand instructions")
    finally:
        if options.keep is None:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
