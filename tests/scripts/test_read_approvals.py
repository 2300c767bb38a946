"""read_approvals: one request by id, or what a tenant's people are asked now."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from ledger.admission import ProposedCall
from ledger.approvals import Position, pending_approvals, read_approval
from ledger.erasure import erase_session
from ledger.errors import InvalidRequest
from ledger.strict_json import check_arguments
from tests.scripts.checking import unchanged
from tests.support.ledger import SHARD, SHARDS, TENANT, TOOL, Ledger, key, plan, proposed


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


def _pages(ledger: Ledger, size: int, **options: Any) -> list[list[str]]:
    """Approval ids page by page."""
    pages, after = [], None
    while True:
        page = unchanged(ledger, pending_approvals(SHARD, TENANT, size, after=after, **options))
        assert len(page.positions) == len(page.approvals)
        assert [position.approval_id for position in page.positions] == [row.approval_id for row in page.approvals]
        assert list(page.positions) == sorted(page.positions)
        pages.append([row.approval_id for row in page.approvals])
        assert len(pages) < 100
        if page.last is None:
            return pages
        assert Position.read(str(page.last)) == page.last
        after = page.last


@pytest.mark.proves("C-40")
def test_pages_hold_everything_once_also_what_was_asked_in_the_same_moment(ledger: Ledger) -> None:
    runs = [ledger.admit(plan(5, level="approve"), session=f"s{n}").run for n in range(3)]
    asked = {call.approval_id or "" for run in runs for call in run.calls}
    ledger.raw.zadd(key(f"pending:{TENANT}"), dict.fromkeys(sorted(asked)[:9], 1_764_557_000_123.001))
    whole = _pages(ledger, 100)
    assert len(whole) == 1
    for size in (1, 2, 4, 15):
        pages = _pages(ledger, size)
        assert all(len(page) == size for page in pages[:-1])
        assert list(chain.from_iterable(pages)) == whole[0]
    assert set(whole[0]) == asked


@pytest.mark.proves("C-40")
def test_one_session_is_found_behind_a_thousand_requests_of_others(ledger: Ledger) -> None:
    for n in range(40):
        ledger.admit(plan(32, level="approve"), session=f"crowd{n}")
    run = ledger.admit(plan(3, level="approve"), session="alone").run
    pages = _pages(ledger, 10, session_id="alone")
    assert pages[0] == []
    assert list(chain.from_iterable(pages)) == [call.approval_id for call in run.calls]


@pytest.mark.proves("C-71")
def test_a_page_holds_about_a_mebibyte_of_arguments(ledger: Ledger) -> None:
    for n in range(3):
        big = [
            ProposedCall(TOOL, check_arguments({"n": f"{n}-{i}", "a": "x" * 250_000}), True, "approve")
            for i in (1, 2, 3)
        ]
        ledger.admit(big, session=f"s{n}")
    assert [len(page) for page in _pages(ledger, 100)] == [5, 4]


@pytest.mark.parametrize("text", ["", "1", "1:2", "1.0:zz" + "0" * 32, "1e400:" + "0" * 34, "nan:" + "0" * 34])
def test_what_was_never_a_position_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Position.read(text)


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
