"""`make mutants`: breaks the code one line at a time, and fails if a test that should notice stays green.

    python -m tests.mutants.run [RULE ...]

Each break is made in a copy of the tree, where only its tests run. First all of them run on the unbroken copy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from xml.etree import ElementTree

from tests.mutants.breaks import Break, all_breaks

ROOT = Path(__file__).parents[2]
COPIED = ("ledger", "service", "workers", "tests", "pyproject.toml")
SECONDS_A_TEST = 60
SECONDS_IN_ALL = 900


def copy_tree(target: Path) -> None:
    """What the tests need, without what earlier runs left."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__", "mutants"))
        else:
            shutil.copy2(source, target / name)


@contextmanager
def broken(tree: Path, one: Break) -> Iterator[None]:
    """The break in place for the time of the block."""
    file = tree / one.path
    text = file.read_text(encoding="utf-8")
    if text.count(one.old) != 1:
        raise LookupError(f"{one.path} holds {text.count(one.old)} times: {one.old!r}")
    file.write_text(text.replace(one.old, one.new), encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(text, encoding="utf-8")


def failed_tests(tree: Path, tests: Sequence[str]) -> set[str]:
    """Those of `tests` that fail in the tree, run there by themselves.

    Raises:
        RuntimeError: pytest did not run them all; a break must not keep the tests from being found.
    """
    report = tree / "report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += [f"--timeout={SECONDS_A_TEST}", f"--junit-xml={report}", "-o", "junit_family=xunit1"]
    # Bytecode is told apart by seconds and sizes; a break of the same length would run as the code before it.
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [*command, *(f"tests/{test}" for test in tests)],
        cwd=tree, env=env, capture_output=True, text=True, timeout=SECONDS_IN_ALL, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 1) or not report.exists():
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    cases = list(ElementTree.parse(report).iter("testcase"))  # noqa: S314  # pytest wrote it a moment ago
    found = dict.fromkeys(map(_name, cases), False)
    for case in cases:
        found[_name(case)] |= any(case.find(kind) is not None for kind in ("failure", "error"))
    missing = {test for test in tests if test not in found}
    if missing:
        raise RuntimeError(f"pytest did not run {sorted(missing)}")
    return {test for test in tests if found[test]}


def _name(case: ElementTree.Element) -> str:
    """As breaks name it: file below `tests/`, class if any, function without its parameters."""
    file = case.attrib["file"].removeprefix("tests/")
    module = file.removesuffix(".py").replace("/", ".")
    inner = case.attrib["classname"].removeprefix(f"tests.{module}").strip(".")
    parts = [file, *([inner] if inner else []), case.attrib["name"].partition("[")[0]]
    return "::".join(parts)


def judge(trees: SimpleQueue[Path], one: Break) -> str | None:
    """What is wrong with a break, or None if every test noticed it."""
    tree = trees.get()
    began = time.monotonic()
    try:
        with broken(tree, one):
            green = set(one.tests) - failed_tests(tree, one.tests)
    except (LookupError, RuntimeError, subprocess.TimeoutExpired) as error:
        return f"{one.rule} {error}"
    finally:
        trees.put(tree)
    took = f"{time.monotonic() - began:.1f} s"
    if green:
        return f"{one.rule} {one.path}: {one.new.strip()!r} was not noticed by {', '.join(sorted(green))}"
    print(f"noticed  {one.rule:<6} {took:>7}  {one.path}: {one.new.strip()[:90]}", flush=True)
    return None


def main(rules: Sequence[str]) -> int:
    """Runs the breaks of `rules`, or all; 0 when every one was noticed."""
    breaks = [one for one in all_breaks() if not rules or one.rule in rules]
    workers = min(len(breaks), os.cpu_count() or 1)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(workers):
            copy_tree(Path(folder) / str(number))
            trees.put(Path(folder) / str(number))
        sound = trees.get()
        red = failed_tests(sound, sorted({test for one in breaks for test in one.tests}))
        trees.put(sound)
        if red:
            print(f"these fail without any break: {', '.join(sorted(red))}")
            return 1
        with ThreadPoolExecutor(workers) as pool:
            wrong = [problem for problem in pool.map(lambda one: judge(trees, one), breaks) if problem]
    print("\n".join(wrong) or f"all {len(breaks)} breaks were noticed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
