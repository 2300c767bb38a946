"""The list of breaks fits the code and the tests: `make mutants` takes minutes, this takes none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.breaks import RULES, Break, all_breaks
from tests.rules.proofs import proofs

ROOT = Path(__file__).parents[2]
BREAKS = all_breaks()


def test_every_rule_has_a_break() -> None:
    assert {one.rule for one in BREAKS} == set(RULES)


@pytest.mark.parametrize("one", BREAKS, ids=lambda one: f"{one.rule} {one.path}")
def test_a_break_fits_the_code_and_names_tests_of_its_rule(one: Break) -> None:
    text = (ROOT / one.path).read_text(encoding="utf-8")
    assert text.count(one.old) == 1, f"{one.path} has changed: write the break anew, and run `make mutants`"
    assert one.new != one.old
    assert one.tests
    for test in one.tests:
        file, _, name = test.partition("::")
        assert f"{Path(file).name}::{name}" in proofs([ROOT / "tests" / file])[one.rule], test
