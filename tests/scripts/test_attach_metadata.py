"""attach_metadata: what a host knows of a resource, during execution or later."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ledger.attempts import Begun
from ledger.outcomes import record_json
from ledger.reconciliation import Target, attach_metadata
from ledger.store import ScriptCall
from tests.scripts.checking import refused, twice
from tests.support.ledger import NOT_EXECUTED, SHARDS, TENANT, Ledger, plan

METADATA = {"id": "dash-7", "title": 'Übersicht "A"', "url": "https://app.example.com/d/7?x=1", "scope_identity": "z"}
PUBLIC = {"resource_id": "dash-7", "title": 'Übersicht "A"', "url": "https://app.example.com/d/7"}


def attach(work: Begun, metadata: dict[str, str], **options: Any) -> ScriptCall[tuple[dict[str, Any], int]]:
    target = Target(TENANT, work.session_id, work.agent, work.user, work.mutation_id)
    if "delivery_id" not in options:
        options.setdefault("logical_turn_id", work.logical_turn_id)
    return attach_metadata(replace(target, **options), metadata, SHARDS)


@pytest.mark.proves("C-12", "C-22", "C-90", "C-111")
def test_on_an_outcome_it_is_published_under_the_next_revision(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    ledger.settle(work, token, next_step=2)
    first, second = twice(ledger, attach(work, METADATA))
    assert first == second
    record, revision = first
    assert record.items() >= PUBLIC.items()
    assert (revision, ledger.outcomes()[-1]["mutation_revision"]) == (3, "3")
    entry = ledger.entry(work)
    outcome = entry.outcome()
    assert outcome is not None
    assert ledger.outcomes()[-1]["record"] == record_json(outcome)
    assert (record, entry.metadata) == (outcome, METADATA)


@pytest.mark.proves("C-90", "C-111")
def test_during_execution_it_waits_for_the_settlement_to_be_published(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    record, revision = ledger.run(attach(work, METADATA))
    assert (record["status"], record["resource_id"], revision, ledger.outcomes()) == (
        "outcome_unknown",
        "dash-7",
        2,
        [],
    )
    settled = ledger.settle(work, token)
    assert settled.record is not None
    assert json.loads(settled.record)["resource_id"] == "dash-7"
    assert [row["mutation_revision"] for row in ledger.outcomes()] == ["3"]


@pytest.mark.proves("C-90")
def test_it_stays_over_later_attempts_and_is_replaced_as_a_whole(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    ledger.run(attach(work, METADATA))
    ledger.settle(work, token, NOT_EXECUTED, next_step=2)
    ledger.admit(plan(1))
    ledger.begin_first()
    assert ledger.entry(work).metadata == METADATA
    ledger.run(attach(work, {"id": "dash-8"}))
    assert ledger.entry(work).metadata == {"id": "dash-8"}


@pytest.mark.proves("C-22", "C-90")
@pytest.mark.parametrize("attached_before", [False, True])
@pytest.mark.parametrize("settled", [False, True])
def test_sent_again_it_does_not_replace_what_was_attached_since(
    ledger: Ledger, settled: bool, attached_before: bool
) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    if settled:
        ledger.settle(work, token, NOT_EXECUTED, reason="pre_dispatch_deadline", next_step=2)
    if attached_before:
        ledger.run(attach(work, {"title": "one"}))
    one = attach(work, {"title": "one"})
    first = ledger.run(one)
    ledger.run(attach(work, {"title": "two"}))
    if settled:
        ledger.admit(plan(1))
        ledger.begin_first()
    outcomes = len(ledger.outcomes())
    assert twice(ledger, one) == (first, first)
    assert (ledger.entry(work).metadata, len(ledger.outcomes())) == ({"title": "two"}, outcomes)


@pytest.mark.proves("C-90")
def test_it_is_found_by_delivery_too(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    ledger.settle(work, token)
    assert ledger.run(attach(work, METADATA, delivery_id="d1"))[1] == 3


@pytest.mark.proves("C-90")
def test_only_the_turn_s_own_agent_and_user_reach_it(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, _ = ledger.begin_first()
    others: list[dict[str, Any]] = [
        {"agent": "sre"},
        {"user": "eve"},
        {"tenant": "other"},
        {"session_id": "s9"},
        {"mutation_id": "0" * 64},
        {"delivery_id": "d9"},
        {"delivery_id": "d1", "user": "eve"},
        {"logical_turn_id": "x" * 34},
    ]
    for other in others:
        refused(ledger, attach(work, METADATA, **other), "not_found")


@pytest.mark.proves("C-90")
def test_a_call_not_begun_has_nothing_to_attach_to(ledger: Ledger) -> None:
    ledger.admit(plan(2))
    work, token = ledger.begin_first()
    ledger.settle(work, token)
    other = ledger.find_run("d1").calls[1].mutation_id
    refused(ledger, attach(work, METADATA, mutation_id=other), "not_found")
