"""Every rule that is claimed is proved by a test that names it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.rules.claimed import CLAIMED, NOT_YET
from tests.rules.proofs import ProofError, proofs

TESTS = Path(__file__).parents[1]
FOUND = proofs(TESTS.rglob("test_*.py"))

SAMPLE = """
import pytest
from pytest import mark

pytestmark = [pytest.mark.proves("C-01")]

@pytest.mark.proves("C-02", "C-03")
@pytest.mark.parametrize("n", [1])
def test_function(n): ...

@mark.proves("C-04")
async def test_coroutine(): ...

@pytest.mark.proves("C-05")
def helper(): ...

@pytest.mark.skipif(True, reason="no")
@pytest.mark.proves("C-06")
def test_skipped(): ...

@pytest.mark.proves("C-07")
class TestClass:
    pytestmark = pytest.mark.proves("C-08")

    @pytest.mark.proves("C-09")
    def test_method(self): ...

    def helper(self): ...

    @pytest.mark.xfail
    @pytest.mark.proves("C-10")
    def test_failing(self): ...

class Helper:
    @pytest.mark.proves("C-11")
    def test_not_collected(self): ...

def outer():
    @pytest.mark.proves("C-12")
    def test_inner(): ...
"""


@pytest.mark.parametrize("rule", CLAIMED)
def test_a_claimed_rule_is_proved(rule: str) -> None:
    assert FOUND.get(rule), f"{rule} is claimed in tests/rules/claimed.py, but no test is marked proves({rule!r})"


def test_tests_name_only_rules_that_exist() -> None:
    assert sorted(FOUND.keys() - set(CLAIMED) - NOT_YET.keys()) == []


def test_a_rule_is_claimed_once_or_told_to_be_missing() -> None:
    assert [rule for rule, count in Counter([*CLAIMED, *NOT_YET]).items() if count > 1] == []


def test_marks_are_found_where_pytest_would_apply_them(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    method = "test_sample.py::TestClass::test_method"
    assert dict(proofs(tmp_path.glob("test_*.py"))) == {
        "C-01": ["test_sample.py::test_function", "test_sample.py::test_coroutine", method],
        "C-02": ["test_sample.py::test_function"],
        "C-03": ["test_sample.py::test_function"],
        "C-04": ["test_sample.py::test_coroutine"],
        "C-07": [method],
        "C-08": [method],
        "C-09": [method],
    }


@pytest.mark.parametrize("mark", ["proves(RULE)", "proves()", 'proves(*["C-01"])', "proves(1)"])
def test_a_mark_that_cannot_be_read_is_an_error(tmp_path: Path, mark: str) -> None:
    (tmp_path / "test_sample.py").write_text(f"@pytest.mark.{mark}\ndef test_one(): ...\n")
    with pytest.raises(ProofError):
        proofs(tmp_path.glob("test_*.py"))
