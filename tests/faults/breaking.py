"""`make fault-breaks`: breaks the code once for each invariant; a harness that sees nothing wrong is a failure.

    python -m tests.faults.breaking [I1 ...]

Every row is played on an unbroken copy of the tree first, where it must find nothing, then on the broken one.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.faults.breaks import BREAKS, FaultBreak
from tests.mutants.breaks import Break
from tests.mutants.run import broken, copy_tree

AT_ONCE = 2
SECONDS = 300.0
SEED = 1
# Violations that the world had found when the row gave up count as well: a broken program need not let it end.
PLAY = """
import json, sys
from pathlib import Path
from tests.faults.harness import world
from tests.faults.table import row
worlds = []
enter = world.World.__enter__
world.World.__enter__ = lambda self: (worlds.append(self), enter(self))[1]
name, options, folder = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])
try:
    found = row(name).play(folder, %d, **options).violations
except Exception as error:
    found = [line for one in worlds for line in one.violations] + [f"harness: {type(error).__name__}: {error}"]
(folder.parent / "found.json").write_text(json.dumps(found))
"""


def play(tree: Path, one: FaultBreak) -> list[str]:
    """What the break's row finds in a tree.

    Raises:
        RuntimeError: the row could not be played.
    """
    with tempfile.TemporaryDirectory(prefix="fault-break-") as folder:
        env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", PLAY % SEED, one.row, json.dumps(dict(one.options)), f"{folder}/world"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                command, cwd=tree, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
            )
            report = Path(folder) / "found.json"
            if not report.exists():
                raise RuntimeError(f"row {one.row} was not played: {done.stderr[-1500:]}")
            found: list[str] = json.loads(report.read_text(encoding="utf-8"))
            return found
    raise RuntimeError(f"row {one.row} took more than {SECONDS:g} s")


def judge(trees: SimpleQueue[Path], one: FaultBreak) -> str | None:
    """What is wrong with a break, or None if its row found what it must, and nothing without it."""
    tree = trees.get()
    began = time.monotonic()
    try:
        sound = play(tree, one)
        if sound:
            return f"{one.invariant}: row {one.row} finds this without any break: {sound[:3]}"
        with broken(tree, Break(one.invariant, one.path, one.old, one.new, ())):
            found = play(tree, one)
    except (LookupError, RuntimeError) as error:
        return f"{one.invariant}: {error}"
    finally:
        trees.put(tree)
    seen = [line for line in found if line.startswith(f"{one.invariant}:")]
    if not seen:
        return f"{one.invariant}: row {one.row} did not see that {one.why}; it found {found[:3]}"
    took = f"{time.monotonic() - began:.0f} s"
    print(f"seen  {one.invariant}  {took:>6}  row {one.row}: {one.why}: {seen[0][:110]}", flush=True)
    return None


def main(invariants: Sequence[str]) -> int:
    """Plays the breaks of `invariants`, or all; 0 when every one was seen."""
    breaks = [one for one in BREAKS if not invariants or one.invariant in invariants]
    with tempfile.TemporaryDirectory(prefix="fault-breaks-") as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(AT_ONCE):
            copy_tree(Path(folder) / str(number))
            trees.put(Path(folder) / str(number))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            wrong = [problem for problem in pool.map(lambda one: judge(trees, one), breaks) if problem]
    print("\n".join(wrong) or f"all {len(breaks)} breaks were seen")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
