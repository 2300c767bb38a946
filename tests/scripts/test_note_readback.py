"""note_readback, and reconcile_mutation with a readback's answer: only the question asked now is answered."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ledger.errors import InvalidRequest
from tests.scripts.checking import refused, twice
from tests.support.ledger import COMPLETED, NOT_EXECUTED, UNKNOWN, Ledger, key
from tests.support.readbacks import TRIES, answered, claim, index, make_due, member, note, unknown


@pytest.mark.proves("C-91", "C-22")
def test_an_answer_that_settles_nothing_is_noted_and_asked_again_later(ledger: Ledger) -> None:
    work = unknown(ledger)
    before = ledger.entry(work)
    (question,) = ledger.run(claim()).questions
    assert twice(ledger, note(question, pause_ms=60_000)) == ("noted", "repeated")
    entry = ledger.entry(work)
    assert (entry.status, entry.revision) == (UNKNOWN, before.revision)
    (told,) = entry.readbacks
    assert (told.by, told.answer, told.note) == ("readback:look", "unknown", "seen in the books")
    assert abs(told.at - ledger.now()) < 10_000
    assert 50_000 < ledger.raw.zscore(index(), member(work)) - ledger.now() <= 60_000
    assert ledger.raw.hgetall(key("counts")) == {b"readbacks:unknown": b"1"}
    assert len(ledger.outcomes()) == 1


@pytest.mark.proves("C-91")
def test_the_last_answers_are_kept(ledger: Ledger) -> None:
    work = unknown(ledger)
    for n in range(TRIES):
        (question,) = ledger.run(claim(f"n{n}")).questions
        ledger.run(note(question))
        make_due(ledger, work)
    assert len(ledger.entry(work).readbacks) == TRIES
    assert ledger.run(claim()).questions == ()


@pytest.mark.proves("C-91", "C-22", "C-12")
@pytest.mark.parametrize(("completed", "status"), [(True, COMPLETED), (False, NOT_EXECUTED)])
def test_an_explicit_answer_reconciles_once(ledger: Ledger, completed: bool, status: object) -> None:
    work = unknown(ledger)
    (question,) = ledger.run(claim()).questions
    first, second = twice(ledger, answered(question, completed=completed))
    assert (first.how, second.how) == ("reconciled", "repeated")
    entry = ledger.entry(work)
    assert (entry.status, entry.reconciled_by, entry.revision) == (status, "readback:look", 3)
    assert [told.answer for told in entry.readbacks] == ["completed" if completed else "not_executed"]
    assert ledger.raw.zcard(index()) == ledger.raw.zcard(key("unknowns:acme")) == 0


@pytest.mark.proves("C-90", "C-91")
def test_what_it_found_is_published_in_the_same_step(ledger: Ledger) -> None:
    work = unknown(ledger)
    (question,) = ledger.run(claim()).questions
    metadata = {"id": "T-7", "title": "Checkout", "scope_identity": "team"}
    record = ledger.run(answered(question, completed=True, metadata=metadata)).record
    assert (record["status"], record["resource_id"], record["title"]) == ("completed", "T-7", "Checkout")
    assert json.loads(ledger.outcomes()[-1]["record"]) == record
    assert ledger.entry(work).metadata == metadata
    with pytest.raises(InvalidRequest):
        answered(question, completed=True, metadata={"secret": "x"})


@pytest.mark.proves("C-91")
def test_an_answer_to_a_question_that_is_somebody_else_s_by_now_changes_nothing(ledger: Ledger) -> None:
    work = unknown(ledger)
    (first,) = ledger.run(claim("n1")).questions
    make_due(ledger, work)
    (second,) = ledger.run(claim("n2")).questions
    refused(ledger, answered(first, completed=False), "readback_over")
    refused(ledger, note(first), "readback_over")
    assert ledger.run(answered(second, completed=True)).how == "reconciled"


@pytest.mark.proves("C-91")
def test_an_answer_about_an_earlier_attempt_changes_nothing(ledger: Ledger) -> None:
    work = unknown(ledger)
    (question,) = ledger.run(claim()).questions
    other = replace(question, request=replace(question.request, attempt=f"{work.attempt}x"))
    refused(ledger, answered(other, completed=False), "readback_over")
    refused(ledger, note(other), "readback_over")


@pytest.mark.proves("C-91")
def test_an_answer_after_somebody_decided_changes_nothing(ledger: Ledger) -> None:
    work = unknown(ledger)
    (question,) = ledger.run(claim()).questions
    ledger.reconcile(work, completed=True)
    refused(ledger, answered(question, completed=False), "not_reconcilable")
    refused(ledger, note(question), "readback_over")
    assert ledger.entry(work).status is COMPLETED


def test_an_answer_about_nothing_changes_nothing(ledger: Ledger) -> None:
    unknown(ledger)
    (question,) = ledger.run(claim()).questions
    gone = replace(question, request=replace(question.request, mutation_id="0" * 64))
    refused(ledger, note(gone), "readback_over")
