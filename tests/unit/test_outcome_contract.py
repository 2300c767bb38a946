"""The shipped contract document runs: every example, its schema, its limits (C-101)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from ledger import contracts, outcomes
from ledger.sanitise import text, urls

CONTRACT = contracts.load()
EXAMPLES: list[dict[str, Any]] = CONTRACT["examples"]
VALIDATOR = Draft202012Validator(CONTRACT["schema"])
RECORD: dict[str, Any] = EXAMPLES[1]["record"]


@pytest.mark.proves("C-101", "C-100")
@pytest.mark.parametrize("example", EXAMPLES, ids=[example["name"] for example in EXAMPLES])
def test_an_entry_is_projected_as_the_contract_shows(example: dict[str, Any]) -> None:
    record = outcomes.project(example["entry"])
    assert record == example["record"]
    if record is not None:
        VALIDATOR.validate(record)
        written = outcomes.record_json(record)
        assert list(json.loads(written)) == list(example["record"])
        assert written.endswith(f",{outcomes.public_fields(example['entry']['metadata'])}}}")


@pytest.mark.proves("C-101")
def test_the_examples_cover_statuses_reasons_and_fields() -> None:
    entries = [example["entry"] for example in EXAMPLES]
    records = [example["record"] for example in EXAMPLES if example["record"]]
    schema = CONTRACT["schema"]["properties"]
    assert len(EXAMPLES) >= 20
    assert len({example["name"] for example in EXAMPLES}) == len(EXAMPLES)
    assert {entry["status"] for entry in entries} == {
        "approved",
        "execution_started",
        "completed",
        "failed",
        "outcome_unknown",
    }
    assert {record["status"] for record in records} == set(schema["status"]["enum"])
    assert {record["reason"] for record in records if "reason" in record} == set(schema["reason"]["enum"])
    for public, field in CONTRACT["metadata_fields"].items():
        attached = [example for example in EXAMPLES if field in (example["entry"]["metadata"] or {})]
        assert any(example["record"][public] is None for example in attached)
        assert any(example["record"][public] is not None for example in attached)


@pytest.mark.proves("C-101")
def test_the_tables_say_what_the_code_does() -> None:
    for ledger, published in CONTRACT["published_status"].items():
        status, _, intent = ledger.partition(", ")
        assert outcomes.published_status(status, intent_recorded=intent != "never started") == published
    for reason, status in CONTRACT["reasons"].items():
        ledger = {"not_executed": "approved"}.get(status, status)
        assert outcomes.published_reason(ledger, reason) == reason
    assert CONTRACT["contract"] == outcomes.SCHEMA
    assert CONTRACT["limits"] == {
        "record_bytes": outcomes.MAX_RECORD_BYTES,
        "resource_id_bytes": text.MAX_RESOURCE_ID_BYTES,
        "url_bytes": urls.MAX_URL_BYTES,
        "title_bytes": text.MAX_TITLE_BYTES,
        "metadata_bytes": outcomes.MAX_METADATA_BYTES,
    }


@pytest.mark.proves("C-101")
@pytest.mark.parametrize(
    "change",
    [
        {"schema": "mutation_outcome/v2"},
        {"status": "execution_started"},
        {"status": "completed", "reason": "execution_timeout"},
        {"status": "outcome_unknown", "reason": "pre_dispatch_deadline"},
        {"status": "not_executed", "reason": "cancelled"},
        {"mutation_id": "17"},
        {"tool": "two words"},
        {"resource_id": "a\nb"},
        {"resource_id": "x" * 257},
        {"url": "https://host.example/x?y=1"},
        {"url": "https://a@host.example/x"},
        {"url": "ftp://host.example/x"},
        {"title": "a\u202eb"},
        {"title": 17},
        {"extra": None},
    ],
)
def test_the_schema_refuses_what_is_no_record(change: dict[str, Any]) -> None:
    VALIDATOR.validate(RECORD)
    with pytest.raises(ValidationError):
        VALIDATOR.validate({**RECORD, **change})


@pytest.mark.proves("C-101")
def test_the_document_is_served_as_shipped() -> None:
    Draft202012Validator.check_schema(CONTRACT["schema"])
    assert json.loads(contracts.raw_bytes()) == CONTRACT
    contracts.load()["limits"].clear()
    assert contracts.load() == CONTRACT
