"""watch_handlers: what became of the calls that live handlers wait for."""

from __future__ import annotations

import pytest

from tests.scripts.checking import refused, twice
from tests.support import handlers
from tests.support.ledger import COMPLETED, Ledger, begun, key


@pytest.mark.proves("C-44")
def test_a_call_s_report_follows_it_to_its_end(ledger: Ledger) -> None:
    handlers.admit(ledger)
    owned = handlers.start(ledger)
    assert owned.watch() == "running"
    asked = owned.propose(0, level="approve")
    assert handlers.report(owned.watch(0)).status == "waiting_for_approval"
    ledger.decide(asked.approval_id or "")
    assert handlers.report(owned.watch(0)).status == "queued"
    work = begun(owned.begin(2))
    assert handlers.report(owned.watch(0)).status == "running"
    ledger.settle(work, owned.token, COMPLETED, result="7")
    told = handlers.report(owned.watch(0))
    assert (told.status, told.result) == ("completed", 7)
    ledger.run(owned.ending())
    assert owned.watch() == "completed"


@pytest.mark.proves("C-22")
def test_asking_twice_changes_nothing(ledger: Ledger) -> None:
    handlers.admit(ledger)
    owned = handlers.start(ledger)
    owned.propose(0, level="approve")
    twice(ledger, owned.watching(0))


@pytest.mark.proves("C-41")
def test_a_request_past_its_time_is_written_expired(ledger: Ledger) -> None:
    run = handlers.admit(ledger)
    owned = handlers.start(ledger)
    owned.propose(0, level="approve", approval_ms=1)
    ledger.outlast_requests()
    assert handlers.report(owned.watch(0)).status == "expired"
    assert ledger.statuses(run) == ["expired"]
    assert ledger.raw.zcard(key("approvals")) == 0


@pytest.mark.proves("C-30", "C-55")
def test_a_cancelled_run_and_a_lost_session_are_told(ledger: Ledger) -> None:
    run = handlers.admit(ledger)
    owned = handlers.start(ledger)
    owned.propose(0)
    begun(owned.begin(2))
    ledger.cancel(run)
    assert owned.watch(0) == "cancelling"
    ledger.reclaim()
    refused(ledger, owned.watching(0), "lease_lost")
