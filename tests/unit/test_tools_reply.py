"""What a result proves, by value; and what of it may be kept."""

from __future__ import annotations

import json
import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.tools.content import MAX_DEPTH, bounded
from workers.tools.reply import judge
from workers.tools.results import Verdict

TEXT = [{"type": "text", "text": "created T-42"}]


@pytest.mark.proves("C-56")
@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        ({"content": TEXT}, Verdict.COMPLETED),
        ({"content": []}, Verdict.COMPLETED),
        ({"content": TEXT, "isError": False}, Verdict.COMPLETED),
        ({"content": TEXT, "isError": None}, Verdict.COMPLETED),
        ({"content": TEXT, "resultType": "complete"}, Verdict.COMPLETED),
        ({"content": [{"type": "hologram"}]}, Verdict.COMPLETED),
        ({"structuredContent": {"id": 7}}, Verdict.COMPLETED),
        ({"content": [], "structuredContent": [1]}, Verdict.COMPLETED),
        ({"content": TEXT, "isError": True}, Verdict.FAILED),
        ({"content": [], "isError": True}, Verdict.FAILED),
        ({"content": TEXT, "isError": True, "resultType": "complete"}, Verdict.FAILED),
        ({"resultType": "input_required", "requestState": "s"}, Verdict.OUTCOME_UNKNOWN),
        ({"resultType": "input_required", "content": TEXT}, Verdict.OUTCOME_UNKNOWN),
        ({"resultType": "task", "content": TEXT}, Verdict.OUTCOME_UNKNOWN),
        ({"resultType": None, "content": TEXT}, Verdict.OUTCOME_UNKNOWN),
        ({"content": "not-a-list"}, Verdict.OUTCOME_UNKNOWN),
        ({"content": ["text"]}, Verdict.OUTCOME_UNKNOWN),
        ({"content": None}, Verdict.OUTCOME_UNKNOWN),
        ({"content": TEXT, "isError": "true"}, Verdict.OUTCOME_UNKNOWN),
        ({"content": TEXT, "isError": 1}, Verdict.OUTCOME_UNKNOWN),
        ({"isError": True}, Verdict.OUTCOME_UNKNOWN),
        ({"is_error": True}, Verdict.OUTCOME_UNKNOWN),
        ({}, Verdict.OUTCOME_UNKNOWN),
    ],
)
def test_a_result_proves_what_the_contract_says(result: dict[str, Any], verdict: Verdict) -> None:
    assert judge(result, 1000).verdict is verdict


@pytest.mark.proves("C-56")
def test_content_that_is_withheld_changes_no_verdict() -> None:
    for flag, verdict in ((False, Verdict.COMPLETED), (True, Verdict.FAILED)):
        reply = judge({"content": [{"type": "text", "text": "x" * 2000}], "isError": flag}, 1000)
        assert (reply.verdict, reply.content, reply.content_withheld) == (verdict, None, True)


def test_protocol_fields_are_not_content() -> None:
    result = {"content": TEXT, "structuredContent": {"id": 1}, "_meta": {"a": 1}, "resultType": "complete"}
    assert judge(result, 1000).content == {"content": TEXT, "structuredContent": {"id": 1}}


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, [None, -math.inf], 2**64, -(2**63) - 1, "\ud800", {1: 2}, {1, 2}, b"x", object(), nested(65)],
)
def test_what_a_journal_cannot_hold_is_withheld(value: object) -> None:
    assert bounded(value, 10_000) == (None, True)


@pytest.mark.parametrize(
    "value", [None, True, 0, 2**64 - 1, -(2**63), 1.5, "é\x00", [], {}, [None, {"a": None}], nested(MAX_DEPTH)]
)
def test_everything_else_is_kept(value: object) -> None:
    assert bounded(value, 10_000) == (value, False)


def test_the_limit_counts_bytes_of_json() -> None:
    assert bounded("é" * 4, 10) == ("é" * 4, False)
    assert bounded("é" * 4, 9) == (None, True)


def test_kept_content_is_a_copy() -> None:
    value = {"a": [1]}
    kept, _ = bounded(value, 100)
    value["a"].append(2)
    assert kept == {"a": [1]}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    )
)
def test_whatever_is_kept_can_be_journalled_and_read_back_equal(value: object) -> None:
    kept, withheld = bounded(value, 500)
    if not withheld:
        assert kept == value
        assert json.loads(json.dumps(kept, allow_nan=False)) == value
        assert len(orjson.dumps(kept)) <= 500
