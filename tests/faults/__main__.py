"""`make faults`: the whole fault matrix on real processes.

python -m tests.faults run [--minutes M] [--parallel N] [ROW ...]    goes on where the last call stopped
python -m tests.faults one ROW SEED                                  one run again, alone
python -m tests.faults table                                         what there is so far
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.faults.harness.tally import Tally
from tests.faults.results import ROOT, Results, code_digest, figures, promises, table
from tests.faults.running import Limits, Runner, jobs, write_tally
from tests.faults.table import ROWS, chosen, row

HOME = ROOT / ".faults"
DONE, VIOLATED, USAGE, UNFINISHED = 0, 1, 2, 3


def say(line: str) -> None:
    """A line of progress."""
    print(line, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if everything was run and nothing found, 1 after a violation, 3 if time was up before."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    run = kinds.add_parser("run")
    run.add_argument("rows", nargs="*", help="names or numbers of rows; all without")
    run.add_argument("--minutes", type=float, default=35.0, help="no new run after so long")
    run.add_argument("--parallel", type=int, default=3, help="runs at once")
    run.add_argument("--anew", action="store_true", help="forget earlier results")
    one = kinds.add_parser("one")
    one.add_argument("row")
    one.add_argument("seed", type=int)
    one.add_argument("--folder", type=Path, default=None)
    kinds.add_parser("table")
    given = parser.parse_args(arguments)
    if given.kind == "run":
        return _run(given.rows, Limits(given.parallel, given.minutes * 60), anew=given.anew)
    if given.kind == "one":
        return _one(given.row, given.seed, given.folder)
    return _show(_results())


def _results() -> Results:
    return Results(HOME / "results.json", code_digest())


def _run(names: Sequence[str], limits: Limits, *, anew: bool) -> int:
    try:
        rows = chosen(names)
    except LookupError as error:
        print(error, file=sys.stderr)
        return USAGE
    if anew:
        (HOME / "results.json").unlink(missing_ok=True)
    results = _results()
    todo = jobs(rows, results)
    say(f"{len(todo)} runs to do, {len(results.runs)} done before; {limits.parallel} at once")
    began = time.monotonic()
    left = Runner(HOME, results, say).run(todo, limits)
    say(f"\n{time.monotonic() - began:.0f} s")
    found = _show(results)
    if left:
        say(f"time is up: {len(left)} runs are left; the same command goes on")
    return found or (UNFINISHED if left else DONE)


def _show(results: Results) -> int:
    for line in [*figures(results.runs), *promises(ROWS, results.runs)]:
        say(line)
    say("\n" + table(ROWS, results.runs))
    return VIOLATED if any(run.tally.violations for run in results.runs) else DONE


def _one(name: str, seed: int, folder: Path | None) -> int:
    """Plays one row here; what it finds, also by failing, is a violation."""
    meant = row(name)
    folder = folder or Path(tempfile.mkdtemp(prefix=f"faults-{name.replace(' ', '-')}-{seed}-"))
    say(f"row {name}, seed {seed}, in {folder}")
    try:
        tally = meant.play(folder / "world", seed, **meant.whole)
    except Exception as error:  # whatever it is, the run did not come to its end, and the parent must hear of it
        traceback.print_exc()
        tally = Tally(violations=[f"harness: {type(error).__name__}: {str(error)[:300]}"])
    write_tally(folder, tally)
    for violation in tally.violations:
        say(violation)
    say(f"{tally.faults}, {tally.mutations} mutations, {tally.figures}")
    return VIOLATED if tally.violations else DONE


if __name__ == "__main__":
    sys.exit(main())
