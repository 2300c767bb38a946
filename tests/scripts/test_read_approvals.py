"""read_approvals: one request by id, or what a tenant's people are asked now."""

from __future__ import annotations

import pytest

from ledger.approvals import pending_approvals, read_approval
from ledger.erasure import erase_session
from tests.scripts.checking import unchanged
from tests.support.ledger import SHARD, SHARDS, TENANT, Ledger, key, plan, proposed


@pytest.mark.proves("C-40", "C-44")
def test_pending_requests_come_oldest_first_with_their_arguments(ledger: Ledger) -> None:
    first = ledger.admit(plan(3, level="approve"), session="s1").run
    ledger.outlast(2)
    second = ledger.admit(plan(1, level="confirm"), session="s2").run
    ledger.admit(plan(1, level="approve"), session="s3", tenant="other")
    rows = unchanged(ledger, pending_approvals(SHARD, TENANT, 10)).approvals
    expected = [call.approval_id for run in (first, second) for call in run.calls]
    assert [row.approval_id for row in rows] == expected
    assert [row.arguments and row.arguments["n"] for row in rows] == [0, 1, 2, 0]
    assert [row.run_id for row in rows] == [first.run_id] * 3 + [second.run_id]
    assert {row.state for row in rows} == {"pending"}
    two = unchanged(ledger, pending_approvals(SHARD, TENANT, 2)).approvals
    assert [row.approval_id for row in two] == expected[:2]


@pytest.mark.proves("C-41")
def test_what_has_expired_is_written_so_and_not_listed_as_pending(ledger: Ledger) -> None:
    gone = ledger.admit(plan(2, level="approve"), limits={"approval_ms": 1}).run
    goes_on = [proposed(8, level="approve"), proposed(9)]
    ledger.admit(goes_on, did="d2", on_error="continue", limits={"approval_ms": 1})
    ledger.outlast_requests()
    stays = ledger.admit(plan(1, level="approve"), did="d3").run
    answer = ledger.run(pending_approvals(SHARD, TENANT, 10))
    assert [row.approval_id for row in answer.approvals] == [stays.calls[0].approval_id]
    assert answer.wake
    assert ledger.raw.zcard(key("approvals")) == 1
    assert ledger.approval(gone.calls[0].approval_id).state == "expired"


@pytest.mark.proves("C-41")
def test_one_read_by_id_meets_its_expiry_too(ledger: Ledger) -> None:
    run = ledger.admit(plan(1, level="approve"), limits={"approval_ms": 1}).run
    ledger.outlast_requests()
    shown = ledger.approval(run.calls[0].approval_id)
    assert (shown.state, shown.decided_by, shown.arguments) == ("expired", None, None)
    assert ledger.statuses(run) == ["expired"]


@pytest.mark.proves("C-42", "C-82")
def test_foreign_unknown_and_erased_requests_are_not_there(ledger: Ledger) -> None:
    run = ledger.admit(plan(1, level="approve")).run
    approval_id = run.calls[0].approval_id or ""
    for wanted, tenant in ((approval_id, "other"), ("00" + "0" * 32, TENANT)):
        assert unchanged(ledger, read_approval(SHARD, tenant, wanted)).approvals == ()
    assert unchanged(ledger, pending_approvals(SHARD, "other", 10)).approvals == ()
    ledger.run(erase_session(TENANT, "s1", 1000, SHARDS))
    ledger.admit(plan(1), did="d2")
    assert unchanged(ledger, read_approval(SHARD, TENANT, approval_id)).approvals == ()
    assert unchanged(ledger, pending_approvals(SHARD, TENANT, 10)).approvals == ()
