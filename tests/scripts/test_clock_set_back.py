"""Marks that a store's clock left in its future, when it was set back, hold nothing up."""

from __future__ import annotations

import pytest

from ledger.erasure import sweep_retention
from ledger.ownership import sweep_shard
from tests.support.ledger import SHARD, Ledger, key, plan

HOUR = 3_600_000


def from_the_future(ledger: Ledger, *marks: str) -> None:
    """As a clock that was an hour ahead would have left them."""
    for mark in marks:
        ledger.raw.set(key(mark), ledger.now() + HOUR, px=2 * HOUR)


@pytest.mark.proves("C-30", "C-33")
def test_a_sweep_of_an_hour_ahead_keeps_nobody_from_sweeping(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    ledger.begin_first()
    (sid,) = ledger.raw.zrange(key("owned"), 0, -1)
    ledger.raw.zadd(key("owned"), {sid: 1})
    from_the_future(ledger, "swept", "swept:retention")
    assert ledger.run(sweep_shard(SHARD, 30_000)).reclaimed == 1
    assert ledger.run(sweep_shard(SHARD, 30_000)).reclaimed == 0
    retention = sweep_retention(SHARD, HOUR, 100)
    ledger.run(retention)
    assert int(ledger.raw.get(key("swept:retention"))) <= ledger.now()


def test_a_promise_of_an_hour_ahead_is_no_promise(ledger: Ledger) -> None:
    from_the_future(ledger, "awake")
    assert ledger.admit(plan(1)).wake
    assert int(ledger.raw.get(key("awake"))) <= ledger.now() + 2_000
    # A promise that somebody did make counts, as before.
    assert not ledger.admit(plan(1), session="s2").wake


def test_the_sweep_finds_ready_sessions_behind_a_promise_of_an_hour_ahead(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    from_the_future(ledger, "awake")
    assert ledger.run(sweep_shard(SHARD, 30_000, interval_ms=1)).claim
