"""`bench` hands its arguments to the benchmark of a checkout, and says so where there is none."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ledger.cli import main


def test_arguments_go_to_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []

    def run(arguments: list[str]) -> int:
        given.append(arguments)
        return 0

    fake: Any = SimpleNamespace(main=run)
    monkeypatch.setitem(sys.modules, "tests.bench.__main__", fake)
    assert main(["bench", "flat", "--rounds", "1"]) == 0
    assert given == [["flat", "--rounds", "1"]]


def test_without_a_checkout_one_line_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tests.bench.__main__", None)  # as if it did not exist
    assert main(["bench"]) == 1
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert "needs a checkout" in told[0]
