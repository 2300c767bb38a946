"""list_sessions: a tenant's sessions, newest first, and what waits for a person."""

from __future__ import annotations

import pytest

from ledger.erasure import erase_session
from ledger.history import list_sessions
from tests.scripts.checking import unchanged
from tests.support.ledger import SHARD, SHARDS, TENANT, UNKNOWN, Ledger, plan
from tests.support.wait import wait_until


def test_sessions_of_one_tenant_newest_first(ledger: Ledger) -> None:
    for n in range(3):
        ledger.admit(plan(1), session=f"s{n}")
        ledger.outlast(2)
    ledger.admit(plan(1), session="s0", did="d2")
    ledger.admit(plan(1), session="s9", tenant="other")
    rows = unchanged(ledger, list_sessions(SHARD, TENANT, 2))
    assert [(row.session_id, row.live_runs, row.turns, row.entry) for row in rows] == [
        ("s0", 2, 0, None),
        ("s2", 1, 0, None),
    ]


@pytest.mark.proves("C-91")
def test_unknown_outcomes_until_they_are_settled(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    assert unchanged(ledger, list_sessions(SHARD, TENANT, 10, unknowns=True)) == ()
    ledger.settle(work, token, UNKNOWN, next_step=2)
    (row,) = unchanged(ledger, list_sessions(SHARD, TENANT, 10, unknowns=True))
    assert (row.session_id, row.entry) == ("s1", ledger.entry(work))
    assert unchanged(ledger, list_sessions(SHARD, "other", 10, unknowns=True)) == ()
    ledger.reconcile(work, completed=True)
    assert unchanged(ledger, list_sessions(SHARD, TENANT, 10, unknowns=True)) == ()


@pytest.mark.proves("C-81", "C-82")
def test_expired_and_erased_sessions_are_not_listed(ledger: Ledger) -> None:
    for session in ("s1", "s2"):
        ledger.admit(plan(1), session=session, limits={"inactivity_ms": 300 if session == "s2" else 10**9})
    ledger.finish(UNKNOWN)
    ledger.run(erase_session(TENANT, "s1", 1000, SHARDS))
    ledger.admit(plan(1), session="s1", did="d9")
    wait_until(lambda: ledger.session("s2") is None, 5, "the session to expire")
    assert unchanged(ledger, list_sessions(SHARD, TENANT, 10, unknowns=True)) == ()
    assert [row.session_id for row in unchanged(ledger, list_sessions(SHARD, TENANT, 10))] == ["s1"]
