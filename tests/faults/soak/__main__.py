"""`make soak`: 10,000 sessions, 100,000 mutations, something killed every 5 to 20 s.

python -m tests.faults.soak [--sessions N] [--mutations N] [--seed N] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.faults.soak.soak import Options, soak

# Below that the processes are still warming up at a tenth of the soak.
FLAT_FROM = 10_000


def say(line: str) -> None:
    """A line of progress."""
    print(line, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if nothing was found; the folder of a soak that found something is kept."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usual = Options()
    parser.add_argument("--sessions", type=int, default=usual.sessions)
    parser.add_argument("--mutations", type=int, default=usual.mutations)
    parser.add_argument("--at-once", type=int, default=usual.at_once, help="sessions under way")
    parser.add_argument("--workers", type=int, default=usual.workers)
    parser.add_argument("--pause", type=float, nargs=2, default=usual.pause, help="seconds between kills, from and to")
    parser.add_argument("--seed", type=int, default=usual.seed)
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args(arguments)
    options = replace(
        usual,
        sessions=given.sessions,
        mutations=given.mutations,
        at_once=given.at_once,
        workers=given.workers,
        pause=tuple(given.pause),
        seed=given.seed,
        flat=given.mutations >= FLAT_FROM,
    )
    folder = given.folder or Path(tempfile.mkdtemp(prefix="soak-"))
    say(f"seed {options.seed}, in {folder}")
    report = soak(folder / "world", options, say)
    say(json.dumps(report.as_json(), indent=1))
    if report.violations:
        say(f"{len(report.violations)} violations; kept in {folder}")
        return 1
    if given.folder is None:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
