"""The benchmark's own arithmetic: goals, pairs, sizes, the table and the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import report
from tests.bench.drivers import Slice
from tests.bench.measure import LEAST, MOST, Figure, Goal, Options, plain, side_by_side, sized
from tests.bench.protocol import load_threads, summary


def at_rate(rate: float, asked: list[int] | None = None) -> object:
    """A run that does `rate` units a second, whatever it is asked for."""

    def run(count: int) -> Slice:
        if asked is not None:
            asked.append(count)
        return Slice(count, count / rate, 1.0, 2.0)

    return run


@pytest.mark.parametrize(
    ("goal", "value", "holds", "shown"),
    [
        (Goal(0.7), 0.7, True, ">= 0.7"),
        (Goal(0.7), 0.69, False, ">= 0.7"),
        (Goal(3.5, at_most=True), 3.5, True, "<= 3.5"),
        (Goal(3.5, at_most=True), 3.51, False, "<= 3.5"),
        (Goal(20_000), 19_999.0, False, ">= 20,000"),
    ],
)
def test_a_goal_holds_at_its_bound(goal: Goal, value: float, holds: bool, shown: str) -> None:
    assert goal.holds(value) is holds
    assert str(goal) == shown


def test_a_figure_is_judged_by_its_median() -> None:
    figure = plain(Figure("F", "a figure", Goal(10)), [9.0, 11.0, 30.0])
    assert (figure.median, figure.holds) == (11.0, True)
    assert plain(Figure("F", "a figure", Goal(10)), [9.0, 9.5, 30.0]).holds is False
    assert plain(Figure("F", "a figure", None), [1.0]).holds is None


def test_pairs_are_taken_side_by_side_and_divided_ours_by_theirs() -> None:
    order: list[str] = []

    def run(name: str, rate: float) -> object:
        def one(count: int) -> Slice:
            order.append(name)
            return Slice(count, count / rate, 4.0 if name == "ours" else 2.0, 9.0)

        return one

    ours, theirs = run("ours", 300.0), run("theirs", 100.0)
    rates = side_by_side(Figure("F", "a figure", None), ours, theirs, Options(rounds=2), counts=(30, 10))  # type: ignore[arg-type]  # a Run
    assert order == ["theirs", "ours"] * 2
    assert rates.values == pytest.approx([3.0, 3.0])
    assert rates.pairs[0] == pytest.approx((300.0, 100.0))
    times = side_by_side(
        Figure("F", "a figure", None),
        ours,  # type: ignore[arg-type]  # a Run
        theirs,  # type: ignore[arg-type]  # a Run
        Options(rounds=1),
        counts=(1, 1),
        value=lambda one: one.p50_ms,
    )
    assert times.values == [2.0]


@pytest.mark.parametrize(("rate", "wanted"), [(5000.0, 10_000), (1.0, LEAST), (1e9, MOST)])
def test_a_slice_is_sized_to_its_seconds_within_bounds(rate: float, wanted: int) -> None:
    asked: list[int] = []
    assert sized(at_rate(rate, asked), 2.0, first=16) == wanted  # type: ignore[arg-type]  # a Run
    # What was too short to tell is tried again for longer.
    assert len(asked) == (1 if rate == 1.0 else 2)


def test_a_summary_orders_what_took_how_long() -> None:
    found = summary([0.003, 0.001, 0.002], 1.5)
    assert found == {"count": 3, "seconds": 1.5, "p50_ms": 2.0, "p99_ms": 3.0}


def test_threads_run_every_unit_once() -> None:
    ran: list[int] = []
    found = load_threads(ran.append, iter(range(100, 200)), 20, 4)
    assert sorted(ran) == list(range(100, 120))
    assert found["count"] == 20


def test_results_say_what_missed_its_goal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    figures = [
        plain(Figure("B1", "kept <goal>", Goal(1)), [1.5, 2.5, 2.0]),
        plain(Figure("B2", "missed goal", Goal(1, at_most=True), "ms"), [1234.0]),
        plain(Figure("B3", "no goal", None, "bytes"), [7.0]),
    ]
    report.write("few", figures, {"cores": 2, "load": (0.5, 0.25, 0.125)})
    first, kept, missed, free = capsys.readouterr().out.splitlines()
    assert first.split() == ["figure", "what", "median", "range", "goal"]
    assert kept.split()[-3:] == [">=", "1", "ok"]
    assert missed.split()[-1] == "MISSED"
    assert free.endswith("7.00 - 7.00")
    told = json.loads((tmp_path / "results" / "few.json").read_text())
    assert [one["holds"] for one in told["figures"]] == [True, False, None]
    assert told["figures"][0]["range"] == [1.5, 2.5]
    page = (tmp_path / "results" / "few.html").read_text()
    assert "kept &lt;goal&gt;" in page
    assert "0.50, 0.25, 0.12" in page
