"""Journal events spelled out."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.records import Event
from service.present import event_object


@pytest.mark.proves("C-112")
@pytest.mark.parametrize(
    ("kind", "word", "told"),
    [
        ("run_started", None, {}),
        ("truncated", None, {}),
        ("approval_decided", "denied", {"decision": "denied"}),
        ("tool_result", "c", {"status": "completed"}),
        ("tool_result", "f", {"status": "failed"}),
        ("tool_result", "u", {"status": "outcome_unknown"}),
        ("tool_result", "a", {"status": "not_executed"}),
        ("tool_result", "deadline", {"status": "not_executed", "code": "deadline"}),
        ("tool_result", "turn_limit", {"status": "refused", "code": "turn_limit"}),
        ("run_completed", "completed", {"status": "completed"}),
        ("run_completed", "cancelled", {"status": "cancelled"}),
        ("run_failed", "failed", {"status": "failed"}),
        ("run_failed", "poison_call", {"status": "failed", "code": "poison_call"}),
        ("something_new", "word", {"code": "word"}),
    ],
)
def test_an_event_says_what_happened_in_words(kind: str, word: str | None, told: dict[str, Any]) -> None:
    event = Event(7, kind, 1_700_000_000_123, None, None, None, None, None, word)
    head = {"n": 7, "type": kind, "at": "2023-11-14T22:13:20.123Z", "run_id": "r"}
    assert event_object("r", event) == head | told


@pytest.mark.proves("C-112")
def test_an_event_carries_only_what_it_has() -> None:
    record = {"schema": "mutation_outcome/v1"}
    event = Event(1, "mutation_outcome", 0, 0, "m", None, record, 3, None)
    shown = event_object("r", event)
    assert list(shown) == ["n", "type", "at", "run_id", "index", "mutation_id", "outcome", "mutation_revision"]
    assert (shown["index"], shown["outcome"], shown["mutation_revision"]) == (0, record, 3)
    asked = event_object("r", Event(2, "approval_requested", 0, 1, "m", "ap", None, None, None))
    assert asked["approval_id"] == "ap"
