"""store_time, and what a process makes of it: deadlines err towards early (C-50)."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from ledger.storetime import MAX_AGE_SECONDS, StoreTime, store_time
from tests.scripts.checking import unchanged
from tests.support.ledger import Ledger, plan


def test_it_tells_the_time_and_writes_nothing(ledger: Ledger) -> None:
    before = ledger.now()
    assert before <= unchanged(ledger, store_time()) <= ledger.now()


@pytest.mark.proves("C-50")
def test_what_the_store_s_time_means_here_is_rounded_against_us() -> None:
    """The reading took two seconds: the store said 50,000 somewhere between 100 and 102."""
    reading = StoreTime(50_000, before=100.0, after=102.0)
    assert reading.monotonic(60_000) == 110.0
    assert reading.store(112.0) == 60_000
    assert reading.store(112.0009) == 60_000
    assert reading.store(reading.monotonic(60_000)) <= 60_000


@pytest.mark.proves("C-50")
def test_an_old_reading_is_not_used() -> None:
    now = time.monotonic()
    reading = StoreTime(0, before=now, after=now)
    assert reading.fresh
    assert not replace(reading, before=now - MAX_AGE_SECONDS - 0.1).fresh


@pytest.mark.proves("C-50")
def test_a_host_s_deadline_in_store_time_wins_if_earlier(ledger: Ledger) -> None:
    now = ledger.now()
    early = ledger.admit(plan(1, level="approve"), did="d1", deadline_at=now + 5_000).run
    late = ledger.admit(plan(1, level="approve"), did="d2", deadline_at=now + 10_000_000).run
    assert ledger.approval(early.calls[0].approval_id).expires_at == now + 5_000
    request = ledger.approval(late.calls[0].approval_id)
    assert request.expires_at == request.requested_at + 300_000


@pytest.mark.proves("C-50")
def test_nothing_revives_a_deadline_that_has_passed(ledger: Ledger) -> None:
    run = ledger.admit(plan(1), did="d1", deadline_at=ledger.now() - 1).run
    ledger.claim()
    assert ledger.statuses(run) == ["not_executed"]
    assert [event.word for event in ledger.journal(run) if event.type == "tool_result"] == ["deadline"]
