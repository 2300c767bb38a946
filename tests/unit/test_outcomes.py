"""The projection of ledger entries and the text a script concatenates (C-11, C-57, C-90, C-100, C-102)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import InvalidRequest, LedgerError
from ledger.identity import mutation_identity
from ledger.outcomes import (
    MAX_RECORD_BYTES,
    EntryView,
    check_metadata,
    project,
    public_fields,
    published_reason,
    published_status,
    record_json,
)

ENTRY = EntryView(
    logical_turn_id="07" + "a1" * 16,
    mutation_id=mutation_identity("pay", {"amount": 1}),
    tool="mcp__dashboards__create",
    status="completed",
    intent_recorded=True,
)
STATUSES = ["approved", "execution_started", "completed", "failed", "outcome_unknown"]
METADATA_VALUE = st.text(max_size=40) | st.sampled_from(
    ["https://a:b@host.example/x?q#f", "password=hunter2hunter2", 'a"\\\n\u202e/é\U0001f600', "x" * 600]
)
METADATA = st.none() | st.dictionaries(
    st.sampled_from(["id", "url", "title", "normalized_title", "scope_identity"]), METADATA_VALUE
)


def projected(**changes: Any) -> dict[str, str | None]:
    record = project(replace(ENTRY, **changes))
    assert record is not None
    return record


@pytest.mark.proves("C-100")
@pytest.mark.parametrize(
    ("status", "intent_recorded", "published"),
    [
        ("completed", True, "completed"),
        ("failed", True, "failed"),
        ("outcome_unknown", True, "outcome_unknown"),
        ("execution_started", True, "outcome_unknown"),
        ("approved", True, "not_executed"),
        ("approved", False, None),
    ],
)
def test_each_ledger_status_has_one_public_reading(status: str, intent_recorded: bool, published: str | None) -> None:
    record = project(replace(ENTRY, status=status, intent_recorded=intent_recorded))
    assert (record and record["status"]) == published
    assert published_status(status, intent_recorded=intent_recorded) == published


@pytest.mark.proves("C-57")
@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("reason", [None, "pre_dispatch_deadline", "execution_timeout", "cancelled", ""])
def test_only_a_settled_timeout_shows_its_reason(status: str, reason: str | None) -> None:
    told = {("approved", "pre_dispatch_deadline"), ("outcome_unknown", "execution_timeout")}
    record = projected(status=status, reason=reason)
    assert record.get("reason") == (reason if (status, reason) in told else None)
    assert ("reason" in record) == ((status, reason) in told)
    assert published_reason(status, reason) == record.get("reason")


@pytest.mark.proves("C-100")
def test_a_mapping_is_read_like_a_view() -> None:
    entry = {
        "logical_turn_id": ENTRY.logical_turn_id,
        "mutation_id": ENTRY.mutation_id,
        "tool": ENTRY.tool,
        "status": "completed",
        "intent_recorded": True,
    }
    assert project(entry) == project(ENTRY)
    full = {**entry, "status": "outcome_unknown", "reason": "execution_timeout", "metadata": {"id": "d-1"}}
    assert project(full) == projected(status="outcome_unknown", reason="execution_timeout", metadata={"id": "d-1"})


@pytest.mark.proves("C-100")
@pytest.mark.parametrize(
    "change",
    [{"status": "paid"}, {"status": ""}, {"tool": "t" * 201}, {"mutation_id": None}, {"logical_turn_id": 7}],
)
def test_an_entry_that_no_ledger_writes_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(LedgerError) as caught:
        project(replace(ENTRY, **change))
    assert caught.value.code == "entry_unreadable"


@pytest.mark.proves("C-100")
def test_a_mapping_without_its_fields_is_refused() -> None:
    with pytest.raises(LedgerError, match="intent_recorded") as caught:
        project({"logical_turn_id": "t", "mutation_id": "m", "tool": "pay", "status": "approved"})
    assert caught.value.code == "entry_unreadable"


@pytest.mark.proves("C-100")
def test_fields_come_only_from_id_url_and_title() -> None:
    metadata = {"normalized_title": "x", "scope_identity": "y", "resource_id": "z", "status": "failed"}
    record = projected(metadata=metadata)
    assert (record["status"], record["resource_id"], record["url"], record["title"]) == (
        "completed",
        None,
        None,
        None,
    )


@pytest.mark.proves("C-100")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("url", "http://[::1/x"),
        ("url", "https://ex℀mple.com/"),
        ("url", "https://host.example:99999/x"),
        ("url", 17),
        ("title", None),
        ("title", "é" * 2_621_440),
        ("id", {"a": 1}),
        ("id", float("nan")),
        ("title", [["x"]]),
        ("title", "\ud800"),
    ],
)
def test_a_field_that_cannot_be_judged_is_withheld_and_the_outcome_told(field: str, value: object) -> None:
    good = {"id": "d-1", "url": "https://host.example/d-1", "title": "Overview"}
    record = projected(metadata={**good, field: value})
    public = {"id": "resource_id", "url": "url", "title": "title"}
    assert record["status"] == "completed"
    for name, expected in good.items():
        assert record[public[name]] == (None if name == field else expected)


class Hostile(str):
    """Text whose every inspection fails, for whatever a judge may stumble over."""

    def isascii(self) -> bool:
        raise MemoryError

    def encode(self, *_: Any, **__: Any) -> bytes:
        raise MemoryError


@pytest.mark.proves("C-100")
def test_no_defect_of_a_judge_keeps_an_outcome_from_being_told() -> None:
    record = projected(metadata={"id": Hostile("x"), "url": Hostile("https://h.example/"), "title": Hostile("x")})
    assert record["status"] == "completed"
    assert (record["resource_id"], record["url"], record["title"]) == (None, None, None)


@pytest.mark.proves("C-100")
@pytest.mark.parametrize("metadata", [None, {}, [], "id", 17, {"id": None}])
def test_metadata_that_is_none_at_all_leaves_nulls(metadata: Any) -> None:
    record = projected(metadata=metadata)
    assert (record["resource_id"], record["url"], record["title"]) == (None, None, None)


@pytest.mark.proves("C-100")
def test_the_text_of_a_record_is_compact_ascii_in_the_contract_order() -> None:
    record = projected(status="outcome_unknown", reason="execution_timeout", metadata={"id": "é", "title": 'a "b"'})
    expected = (
        f'{{"schema":"mutation_outcome/v1","logical_turn_id":"{ENTRY.logical_turn_id}",'
        f'"mutation_id":"{ENTRY.mutation_id}","tool":"mcp__dashboards__create","status":"outcome_unknown",'
        '"reason":"execution_timeout","resource_id":"\\u00e9","url":null,"title":"a \\"b\\""}'
    )
    assert record_json(record) == expected
    assert record_json(dict(reversed(record.items()))) == expected


def concatenated(entry: EntryView, status: str, fragment: str) -> str:
    """A record as a Lua script writes it: no escaping, only pieces put in a row."""
    reason = published_reason(entry.status, entry.reason)
    return (
        '{"schema":"mutation_outcome/v1","logical_turn_id":"'
        + entry.logical_turn_id
        + '","mutation_id":"'
        + entry.mutation_id
        + '","tool":"'
        + entry.tool
        + '","status":"'
        + status
        + '"'
        + (',"reason":"' + reason + '"' if reason else "")
        + ","
        + fragment
        + "}"
    )


@pytest.mark.proves("C-100")
@settings(deadline=None)
@given(
    st.sampled_from(STATUSES),
    st.sampled_from([None, "pre_dispatch_deadline", "execution_timeout", "cancelled"]),
    st.from_regex(r"[A-Za-z0-9_.:/@-]{1,200}", fullmatch=True),
    METADATA,
)
def test_a_script_writes_the_same_bytes(
    status: str, reason: str | None, tool: str, metadata: Mapping[str, str] | None
) -> None:
    entry = replace(ENTRY, status=status, reason=reason, tool=tool, metadata=metadata)
    record = project(entry)
    assert record is not None
    text = record_json(record)
    assert json.loads(text) == record
    assert text == concatenated(entry, str(record["status"]), public_fields(metadata))
    assert len(text) <= MAX_RECORD_BYTES


@pytest.mark.proves("C-100")
def test_the_largest_record_stays_under_16_kib() -> None:
    metadata = {
        "id": "é" * 128,
        "url": "https://h.example/" + "é" * 1015,
        "title": '"\\' * 256,
    }
    record = projected(
        logical_turn_id="\U0001f600" * 200,
        mutation_id="\U0001f600" * 200,
        tool="\U0001f600" * 200,
        status="outcome_unknown",
        reason="execution_timeout",
        metadata=metadata,
    )
    assert None not in record.values()
    assert 15_000 < len(record_json(record)) <= MAX_RECORD_BYTES


@pytest.mark.proves("C-90")
def test_metadata_is_five_string_fields_of_4096_bytes() -> None:
    metadata = {"title": "Café", "id": "d-1", "url": "u", "normalized_title": "n", "scope_identity": "s"}
    text = check_metadata(metadata)
    assert json.loads(text) == metadata
    assert text == '{"id":"d-1","normalized_title":"n","scope_identity":"s","title":"Café","url":"u"}'
    assert check_metadata({}) == "{}"
    room = 4096 - len('{"title":""}')
    assert len(check_metadata({"title": "x" * room})) == 4096
    assert len(check_metadata({"title": "é" * (room // 2)}).encode()) <= 4096
    for title in ("x" * (room + 1), "é" * (room // 2 + 1), "\n" * (room // 2 + 1), "x" * 5_000_000):
        with pytest.raises(InvalidRequest, match="4096 bytes"):
            check_metadata({"title": title})


@pytest.mark.proves("C-90")
@pytest.mark.parametrize(
    ("metadata", "fault"),
    [
        (None, "must be an object"),
        ([], "must be an object"),
        ("id", "must be an object"),
        ({"resource_id": "x"}, "may hold only"),
        ({"id": "x", "hunter2": "y"}, "may hold only"),
        ({1: "x"}, "may hold only"),
        ({"id": 17}, "must be strings"),
        ({"id": None}, "must be strings"),
        ({"id": ["x"]}, "must be strings"),
        ({"id": "hunter2\ud800"}, "unpaired surrogate"),
    ],
)
def test_other_metadata_is_refused_without_quoting_it(metadata: object, fault: str) -> None:
    with pytest.raises(InvalidRequest, match=fault) as caught:
        check_metadata(metadata)
    assert caught.value.code == "invalid_request"
    assert "hunter2" not in str(caught.value)
