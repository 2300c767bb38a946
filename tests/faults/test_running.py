"""The runner of `make faults`: a violation is never a success, and a second call goes on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults import __main__ as command
from tests.faults import running
from tests.faults.harness.tally import Tally
from tests.faults.results import Results, Run, promises, table
from tests.faults.running import Limits, Runner, jobs
from tests.faults.table import ROWS, Row, chosen


def play(folder: Path, seed: int) -> Tally:
    """A row that finds something with every third seed."""
    del folder
    return Tally({"kill -9 at a point": 2}, 10, ["I1: twice"] if seed % 3 == 0 else [])


def made(name: str, *, seeds: int, seconds: float = 1.0, kept: tuple[int, ...] = ()) -> Row:
    """A row for these tests."""
    return Row(name, f"fault {name}", play, seeds=seeds, seconds=seconds, kept=kept)


def done(file: Path, row: str, seed: int, tally: Tally) -> Results:
    """Results with one run more."""
    results = Results(file, "code")
    results.add(Run(row, seed, 1.0, tally))
    return results


def test_every_row_is_begun_before_any_is_played_often(tmp_path: Path) -> None:
    rows = [made("a", seeds=3), made("b", seeds=1, seconds=9.0)]
    ordered = [(row.name, seed) for row, seed in jobs(rows, Results(tmp_path / "results.json", "code"))]
    assert ordered == [("b", 1), ("a", 1), ("a", 2), ("a", 3)]


def test_kept_seeds_come_first() -> None:
    assert made("a", seeds=3, kept=(77,)).runs() == [77, 1, 2]
    assert made("a", seeds=1, kept=(77, 78)).runs() == [77, 78]


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    file, row = tmp_path / "results.json", made("a", seeds=3)
    done(file, "a", 1, Tally({"x": 1}, 5))
    results = done(file, "a", 2, Tally({"x": 1}, 5, ["I1: twice"]))
    # A run that found something is played again: whether it is repaired is the question.
    assert [seed for _, seed in jobs([row], results)] == [2, 3]
    assert [run.seed for run in Results(file, "code").runs] == [1, 2]
    assert Results(file, "other code").runs == []


def test_the_table_adds_up(tmp_path: Path) -> None:
    rows = [made("a", seeds=2), made("b", seeds=1)]
    results = done(tmp_path / "results.json", "a", 1, play(tmp_path, 1))
    results.add(Run("a", 3, 1.0, play(tmp_path, 3)))
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table(rows, results.runs).splitlines()]
    assert lines[2] == ["a", "fault a", "2", "4 kill -9 at a point", "20", "1"]
    assert lines[3] == ["b", "fault b", "0", "-", "0", "0"]
    assert lines[4] == ["all", "", "2", "4 kill -9 at a point", "20", "1"]


def test_what_was_acknowledged_and_lost_is_counted() -> None:
    runs = [Run("a", 1, 1.0, Tally(acknowledged=5)), Run("a", 2, 1.0, Tally(violations=["I3: gone"], acknowledged=2))]
    assert promises([made("a", seeds=2), made("b", seeds=1)], runs) == [
        "row a: 7 answers that something is on record, 1 of them lost"
    ]


def test_rows_by_number_and_by_name() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert [row.name for row in chosen(["15"])] == ["15 in step", "15 missed", "15 emptied", "15 older", "15 cluster"]
    assert [row.name for row in chosen(["15 older"])] == ["15 older"]
    assert chosen([]) == list(ROWS)
    with pytest.raises(LookupError):
        chosen(["99"])


@pytest.mark.parametrize(
    ("ends", "exit_code", "found"),
    [
        ({"tally": [Tally({"x": 1}, 5)]}, command.DONE, ""),
        ({"tally": [Tally({"x": 1}, 5, ["I1: twice"])]}, command.VIOLATED, "I1: twice"),
        ({"dies": [True]}, command.VIOLATED, "harness: the run ended with 7"),
        ({"late": [True]}, command.UNFINISHED, "1 runs are left"),
    ],
)
def test_the_exit_code_tells(
    ends: dict[str, Any],
    exit_code: int,
    found: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "HOME", tmp_path)
    monkeypatch.setattr(command, "ROWS", ROWS[:1])
    row = made("1", seeds=1, seconds=99.0 if "late" in ends else 0.1)
    monkeypatch.setattr(command, "chosen", lambda _names: [row])
    code = "import json, sys, pathlib\nfolder = pathlib.Path(sys.argv[-1])\n"
    code += "sys.exit(7)\n" if "dies" in ends else ""
    code += (
        f"(folder / 'tally.json').write_text({json.dumps(json.dumps(ends['tally'][0].as_json()))})\n"
        if "tally" in ends
        else ""
    )
    script = tmp_path / "run.py"
    script.write_text(code)
    monkeypatch.setattr(running, "COMMAND", [sys.executable, str(script)])
    assert command.main(["run", "--minutes", "0.5"]) == exit_code
    printed = capsys.readouterr().out
    assert found in printed
    kept = (tmp_path / "1-1").exists()
    assert kept == (exit_code == command.VIOLATED)
    if kept:
        assert "python -m tests.faults one '1' 1" in printed


def test_a_run_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "run.py"
    script.write_text("import threading\nthreading.Event().wait()\n")
    monkeypatch.setattr(running, "COMMAND", [sys.executable, str(script)])
    monkeypatch.setattr(running, "LEAST_BOUND", 0.5)
    results = Results(tmp_path / "results.json", "code")
    said: list[str] = []
    Runner(tmp_path, results, said.append).run([(made("1", seeds=1, seconds=0.0), 1)], Limits(seconds=5.0))
    assert "hangs" in results.runs[0].tally.violations[0]
    assert any("VIOLATIONS" in line for line in said)


def test_one_run_alone_catches_what_it_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(folder: Path, seed: int) -> Tally:
        raise AssertionError(f"waited for {folder.name} {seed}")

    monkeypatch.setattr(command, "row", lambda name: Row(name, "breaks", breaks, seeds=1, seconds=1))
    assert command.main(["one", "1", "4", "--folder", str(tmp_path)]) == command.VIOLATED
    tally = running.read_tally(tmp_path)
    assert tally is not None
    assert tally.violations == ["harness: AssertionError: waited for world 4"]
    assert "row 1, seed 4" in capsys.readouterr().out


def test_no_name_of_a_row_is_an_error_of_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["run", "no-such-row"]) == command.USAGE
    assert "no row 'no-such-row'" in capsys.readouterr().err
