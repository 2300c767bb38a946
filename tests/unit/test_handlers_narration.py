"""What a handler returned, as it is stored: JSON, bounded, never an exception."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.handlers import NARRATION_BYTES, handler_input
from workers.handlers.narration import WITHHELD, narration_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("value", ["done", {"id": 7}, ["a", None, True, 1.5], None, "", "ünïcode 🎉"])
def test_plain_values_are_kept(value: Any) -> None:
    assert json.loads(narration_json(value)) == value


@pytest.mark.proves("C-71")
@pytest.mark.parametrize("letter", ["a", "ü", "🎉", "\n"])
def test_a_long_text_is_cut_between_characters(letter: str) -> None:
    kept = json.loads(narration_json(letter * NARRATION_BYTES))
    assert kept
    assert set(kept) == {letter}
    assert len(json.dumps(kept, ensure_ascii=False).encode()) <= NARRATION_BYTES
    assert len(json.dumps(kept + letter, ensure_ascii=False).encode()) > NARRATION_BYTES


@pytest.mark.parametrize(
    "value", [object(), {"big": "x" * NARRATION_BYTES}, float("nan"), {1: 2}, "\ud800" * NARRATION_BYTES, 2**70]
)
def test_what_cannot_be_kept_is_said_to_be_withheld(value: Any) -> None:
    assert json.loads(narration_json(value)) == WITHHELD


@given(VALUES)
def test_it_never_raises_and_always_is_json(value: Any) -> None:
    json.loads(narration_json(value))


@pytest.mark.proves("C-02")
def test_text_and_input_keep_numbers_exact() -> None:
    text, value = json.loads(handler_input("hi", {"n": 2**200, "x": 1.0}))
    assert (text, value) == ("hi", {"n": 2**200, "x": 1.0})
    assert isinstance(value["x"], float)
    with pytest.raises(ValueError, match="JSON"):
        handler_input("hi", float("nan"))
