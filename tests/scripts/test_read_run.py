"""read_run: a run as its callers see it."""

from __future__ import annotations

import pytest

from ledger.erasure import erase_session
from ledger.runs import read_run
from ledger.states import RunStatus
from tests.scripts.checking import unchanged
from tests.support.ledger import SHARD, SHARDS, TENANT, Ledger, plan, proposed


@pytest.mark.proves("C-112")
def test_it_shows_calls_entries_and_the_journal_s_length(ledger: Ledger) -> None:
    run = ledger.admit([proposed(0), proposed(1, protected=False), proposed(2, level="confirm")]).run
    work, token = ledger.begin_first()
    ledger.settle(work, token, result='{"big":18446744073709551617}', next_step=2)
    shown = unchanged(ledger, read_run(SHARD, run.run_id, TENANT)).run
    assert shown is not None
    assert [call.status for call in shown.calls] == ["completed", "running", "waiting_for_approval"]
    assert [call.entry and call.entry.status for call in shown.calls] == ["completed", None, None]
    assert shown.calls[0].result == {"big": 18446744073709551617}
    assert (shown.logical_turn_id, shown.journal_length) == (work.logical_turn_id, len(ledger.journal(run)))
    assert (shown.session_id, shown.agent, shown.user, shown.principal, shown.delivery_id) == (
        "s1",
        "ops",
        "dana",
        "agent",
        "d1",
    )


@pytest.mark.proves("C-41")
def test_a_read_that_meets_an_expired_request_writes_the_expiry(ledger: Ledger) -> None:
    calls = [proposed(0, level="approve"), proposed(1)]
    run = ledger.admit(calls, on_error="continue", limits={"approval_ms": 1}).run
    ledger.outlast_requests()
    first = ledger.run(read_run(SHARD, run.run_id, TENANT))
    assert first.wake
    assert first.run is not None
    assert ([call.status for call in first.run.calls], first.run.status) == (["expired", "queued"], RunStatus.QUEUED)
    assert unchanged(ledger, read_run(SHARD, run.run_id, TENANT)).run == first.run


@pytest.mark.proves("C-82")
def test_foreign_unknown_and_erased_runs_are_not_there(ledger: Ledger) -> None:
    run = ledger.admit(plan(1)).run
    for run_id, tenant in ((run.run_id, "other"), ("00" + "0" * 32, TENANT)):
        assert unchanged(ledger, read_run(SHARD, run_id, tenant)).run is None
    ledger.run(erase_session(TENANT, "s1", 1000, SHARDS))
    ledger.admit(plan(1), did="d2")
    assert unchanged(ledger, read_run(SHARD, run.run_id, TENANT)).run is None
