"""The list of breaks covers all nine invariants and fits the code; `make fault-breaks` plays them."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tests.faults.breaks import BREAKS, INVARIANTS, FaultBreak
from tests.faults.table import row

ROOT = Path(__file__).parents[2]


def test_every_invariant_has_a_break() -> None:
    assert sorted({one.invariant for one in BREAKS}) == sorted(INVARIANTS)


@pytest.mark.parametrize("one", BREAKS, ids=lambda one: f"{one.invariant} {one.path}")
def test_a_break_fits_the_code_and_names_a_row(one: FaultBreak) -> None:
    text = (ROOT / one.path).read_text(encoding="utf-8")
    assert text.count(one.old) == 1, f"{one.path} has changed: write the break anew, and run `make fault-breaks`"
    assert one.new != one.old
    inspect.signature(row(one.row).play).bind(Path(), 1, **one.options)
