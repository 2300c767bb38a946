"""renew_leases: longer leases for the sessions held, and news of each."""

from __future__ import annotations

import pytest

from ledger.ownership import renew_leases
from tests.support.ledger import SHARD, Ledger, key, plan, proposed


@pytest.mark.proves("C-30")
def test_a_lease_is_counted_from_the_store_s_now(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    before = ledger.now()
    (renewal,) = ledger.run(renew_leases(SHARD, [(work.sid, token)], 60_000))
    assert renewal.held
    assert before + 60_000 <= ledger.raw.zscore(key("owned"), work.sid) <= ledger.now() + 60_000


@pytest.mark.proves("C-30")
def test_a_lost_session_s_lease_is_not_touched(ledger: Ledger) -> None:
    for n in range(2):
        ledger.admit(plan(1), session=f"s{n}")
    first, second = ledger.claim()
    ledger.end_leases()
    rows = [(first.sid, first.token + "x"), (second.sid, second.token), ("0" * 32, first.token)]
    assert [row.held for row in ledger.run(renew_leases(SHARD, rows, 60_000))] == [False, True, False]
    assert ledger.raw.zscore(key("owned"), first.sid) == 1
    ledger.sweep()
    assert [row.held for row in ledger.run(renew_leases(SHARD, [(first.sid, first.token)], 60_000))] == [False]
    assert ledger.raw.zrange(key("owned"), 0, -1) == [second.sid.encode()]


@pytest.mark.proves("C-31", "C-55")
def test_it_says_whether_the_call_in_flight_was_cancelled(ledger: Ledger) -> None:
    run = ledger.admit([proposed(0), proposed(1)]).run
    work, token = ledger.begin_first()
    rows = [(work.sid, token)]
    assert [row.cancelled_step for row in ledger.run(renew_leases(SHARD, rows, 1000))] == [0]
    ledger.cancel(run)
    assert [row.cancelled_step for row in ledger.run(renew_leases(SHARD, rows, 1000))] == [1]
    ledger.settle(work, token)
    assert [row.cancelled_step for row in ledger.run(renew_leases(SHARD, rows, 1000))] == [0]


def test_one_that_cannot_be_read_costs_no_other_lease(ledger: Ledger) -> None:
    for n in range(3):
        ledger.admit(plan(1), session=f"s{n}")
    rows = [(row.sid, row.token) for row in ledger.claim()]
    name = key(f"session:{rows[1][0]}")
    ledger.raw.hset(name, "meta", b"\x02" + ledger.raw.hget(name, "meta")[1:])
    assert [row.held for row in ledger.run(renew_leases(SHARD, rows, 1000))] == [True, False, True]
