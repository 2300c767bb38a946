"""The reliability page names tests, targets, commands and settings that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ledger.config import RedisConfig
from tests.faults.breaks import INVARIANTS
from tests.faults.table import ROWS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(tests/[\w/.]+)`", PAGE))))
def test_a_test_that_it_names_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_targets_and_settings_exist() -> None:
    targets = set(re.findall(r"`make ([a-z-]+)", PAGE))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"faults", "fault-breaks", "soak", "test", "mutants"} <= targets
    assert [target for target in targets if f"\n{target}: " not in makefile] == []
    assert "aof_replicas" in RedisConfig.model_fields


def test_every_invariant_is_a_promise_and_every_row_is_there() -> None:
    assert re.findall(r"^\| (I\d):", PAGE, re.MULTILINE) == list(INVARIANTS)
    numbers = {int(part) for row in ROWS for part in re.findall(r"\d+", row.name.split()[0])}
    named = {int(number) for number in re.findall(r"\brows? (\d+)", PAGE)}
    assert named <= numbers | {21}
    assert "(docs/reliability.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
