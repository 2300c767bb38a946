"""Every boundary of the path has its named points, and they cost nothing while nobody armed them."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import timeit
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger import faultpoints
from tests.faults.boundaries import ALL, BOUNDARIES

ROOT = Path(__file__).parents[2]
# Where a step happens; a point with the right name in the wrong place proves nothing.
HOME: dict[str, str | tuple[str, ...]] = {
    "admit": "service/", "decide": "service/", "wake": ("service/", "workers/"), "publish": "service/",
    "store": "ledger/store/",
}  # fmt: skip


def points_in(path: Path) -> Iterator[str]:
    """The names handed to `reach` in one file; each must be a literal."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "reach":
            (name,) = node.args
            assert isinstance(name, ast.Constant), f"{path}: a point's name must be a literal"
            assert isinstance(name.value, str)
            yield name.value


@pytest.fixture(scope="module")
def placed() -> dict[str, set[str]]:
    """Point -> files that reach it."""
    found: dict[str, set[str]] = {}
    for package in ("ledger", "service", "workers"):
        for path in (ROOT / package).rglob("*.py"):
            for name in points_in(path):
                found.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    return found


@pytest.mark.parametrize("step", BOUNDARIES)
def test_every_boundary_has_its_points(step: str, placed: dict[str, set[str]]) -> None:
    for point in BOUNDARIES[step]:
        assert point in placed, f"nothing reaches {point}"
        assert all(file.startswith(HOME.get(step, "workers/")) for file in placed[point]), placed[point]


def test_no_point_is_without_a_boundary(placed: dict[str, set[str]]) -> None:
    assert set(placed) == ALL


def test_every_transport_says_when_a_call_is_sent(placed: dict[str, set[str]]) -> None:
    assert placed["dispatch.sent"] == {f"workers/tools/{kind}.py" for kind in ("native", "stdio", "http")}
    assert placed["store.sent"] == {"ledger/store/connections.py", "ledger/store/lane.py"}


def test_an_unarmed_point_costs_nothing_measurable() -> None:
    # A mutation passes about 20 points and takes a worker 60 microseconds.
    best = min(timeit.repeat(lambda: faultpoints.reach("begin.confirmed"), number=20_000, repeat=5)) / 20_000
    assert best < 1e-6


def armed(text: str, code: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a process armed with `text`."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), faultpoints.VARIABLE: text}
    env[faultpoints.LOG_VARIABLE] = str(tmp_path / "faults.log")
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)


TWICE = """
from ledger.faultpoints import reach
reach('a')
reach('b')
print('once', flush=True)
reach('a')
print('alive')
"""


def test_the_nth_time_counts(tmp_path: Path) -> None:
    killed = armed("a:2:kill", TWICE, tmp_path)
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "once\n")
    assert (tmp_path / "faults.log").read_text().split()[1:] == ["a", "kill"]
    unharmed = armed("a:3:kill,c:1:kill", TWICE, tmp_path)
    assert (unharmed.returncode, unharmed.stdout) == (0, "once\nalive\n")
    raised = armed("b:1:raise", TWICE, tmp_path)
    assert "InjectedFault: b" in raised.stderr
    assert armed("a:1:nonsense", TWICE, tmp_path).returncode == 1
