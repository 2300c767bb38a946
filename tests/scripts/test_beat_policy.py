"""beat_policy: living processes keep their policy from being replaced; a silent or gone one does not (C-05)."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.agreement import Agreement, beat_policy, differences, leave_policy
from ledger.policy import Policy
from tests.support.ledger import SEQ, Ledger, key


def _policy(**levels: str) -> Policy:
    return Policy(levels=levels, mutation_tools=frozenset({"mcp__d__patch"}), read_only=frozenset(), aliases={})


OLD, NEW = _policy(mcp__d__create="approve"), _policy(mcp__d__create="confirm", mcp__d__drop="approve")
EMPTY = Policy({}, frozenset(), frozenset(), {})
DIFFERENT = Agreement(
    agreed=False,
    differences=(
        'levels.mcp__d__create: "confirm" here, "approve" there',
        'levels.mcp__d__drop: "approve" here, absent there',
    ),
)


def _silence(ledger: Ledger, process: str, ms: int) -> None:
    """As if the process had said nothing for so long."""
    ledger.raw.zadd(key("policy:alive"), {f"{OLD.digest} {process}": ledger.now() - ms})


def _count(ledger: Ledger) -> int:
    return int(ledger.raw.hget(SEQ, "n"))


@pytest.mark.proves("C-05")
def test_the_first_policy_is_the_stores_and_another_waits_while_it_is_followed(ledger: Ledger) -> None:
    assert ledger.run(beat_policy(OLD, "a")).agreed
    assert ledger.run(beat_policy(NEW, "b")) == DIFFERENT
    assert ledger.run(beat_policy(OLD, "c")).agreed
    ledger.run(leave_policy(OLD, "a"))
    assert not ledger.run(beat_policy(NEW, "b")).agreed
    ledger.run(leave_policy(OLD, "c"))
    assert ledger.run(beat_policy(NEW, "b")).agreed
    # Whoever comes back with the old one waits now.
    assert not ledger.run(beat_policy(OLD, "a")).agreed


@pytest.mark.proves("C-05")
@pytest.mark.parametrize(("silent_ms", "agreed"), [(14_000, False), (15_001, True), (-60_000, True)])
def test_fifteen_seconds_of_silence_count_as_gone(ledger: Ledger, silent_ms: int, agreed: bool) -> None:
    ledger.run(beat_policy(OLD, "a"))
    _silence(ledger, "a", silent_ms)
    assert ledger.run(beat_policy(NEW, "b")).agreed is agreed


@pytest.mark.proves("C-05")
def test_a_beat_keeps_a_process_alive_and_is_no_durable_write(ledger: Ledger) -> None:
    ledger.run(beat_policy(OLD, "a"))
    before = _count(ledger)
    _silence(ledger, "a", 14_000)
    ledger.run(beat_policy(OLD, "a"))
    assert not ledger.run(beat_policy(NEW, "b")).agreed
    assert _count(ledger) == before
    ledger.run(leave_policy(OLD, "a"))
    ledger.run(beat_policy(NEW, "b"))
    assert _count(ledger) == before + 1


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (OLD, OLD, ()),
        (_policy(), EMPTY, ("mutation_tools.mcp__d__patch: present here, absent there",)),
        (
            Policy({}, frozenset(), frozenset(), {"make": "x"}),
            Policy({}, frozenset(), frozenset(), {"make": "y"}),
            ('aliases.make: "x" here, "y" there',),
        ),
    ],
)  # fmt: skip
def test_what_differs_is_named(one: Policy, other: Policy, expected: Any) -> None:
    assert differences(one.description, other.description) == expected


def test_a_long_list_of_differences_is_cut() -> None:
    many = _policy(**{f"mcp__d__t{n:02}": "approve" for n in range(14)})
    lines = differences(many.description, _policy().description)
    assert len(lines) == 11
    assert lines[-1] == "and 4 more"
