"""sweep_retention: what has expired or was erased leaves every key, in bounded pieces."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.admission import admit_delivery
from ledger.erasure import RetentionReply, erase_session, sweep_retention
from tests.scripts.checking import refused, unchanged
from tests.support.ledger import (
    LIMITS,
    SHARD,
    SHARDS,
    TENANT,
    UNKNOWN,
    Ledger,
    delivery,
    key,
    plan,
    proposed,
    sid_of,
)
from tests.support.wait import wait_until

SECRET = "wort-das-weg-muss"


def sweep(ledger: Ledger, *, most: int = 50, bound: int = 1000) -> RetentionReply:
    ledger.raw.delete(key("swept:retention"))
    return ledger.run(sweep_retention(SHARD, 60_000, bound, most=most))


def sweep_all(ledger: Ledger, **options: Any) -> int:
    """Sweeps until nothing is left; how often that took."""
    for count in range(1, 500):
        if not sweep(ledger, **options).more:
            return count
    raise AssertionError("the sweep does not come to an end")


@pytest.mark.proves("C-82", "C-83", "C-84")
def test_nothing_of_an_erased_session_stays_in_any_key(ledger: Ledger) -> None:
    metadata = {"title": SECRET, "id": SECRET}
    ledger.admit(plan(2, text=SECRET), session=f"{SECRET}-s", user=SECRET, on_error="continue")
    work, token = ledger.begin_first()
    ledger.attach(work, metadata, user=SECRET)
    second: Any = ledger.settle(work, token, UNKNOWN, result=f'"{SECRET}"', next_step=2).work
    ledger.settle(second, token, next_step=3)
    ledger.admit([proposed(9, level="approve", text=SECRET)], session=f"{SECRET}-s", did=SECRET, user=SECRET)
    ledger.admit(plan(1), session="other")
    assert {name.partition("}:")[2].partition(":")[0] for name in ledger.where(SECRET)} == {
        "approval",
        "args",
        "outcomes",
        "run",
        "session",
    }
    ledger.run(erase_session(TENANT, f"{SECRET}-s", 60_000, SHARDS))
    sweep_all(ledger)
    ledger.raw.delete(key("forget"))
    assert ledger.where(SECRET) == []
    assert ledger.raw.zcard(key("unknowns:acme")) == ledger.raw.zcard(key("erase")) == 0
    assert ledger.session("other") is not None
    left = {name for name in ledger.snapshot() if sid_of(f"{SECRET}-s") in name}
    assert left == set()


@pytest.mark.proves("C-82")
@pytest.mark.parametrize("most", [2, 50])
def test_it_deletes_in_bounded_pieces(ledger: Ledger, most: int) -> None:
    for n in range(4):
        ledger.admit(plan(32), did=f"d{n}")
    ledger.finish()
    ledger.run(erase_session(TENANT, "s1", 60_000, SHARDS))
    fields = ledger.raw.hlen(key(f"erased:{int(ledger.raw.get(key('fence')))}"))
    assert fields > 130
    sweeps = sweep_all(ledger, most=most)
    assert sweeps >= fields / (most * 4) / 4
    assert ledger.raw.xlen(key("outcomes")) == 0


@pytest.mark.proves("C-81", "C-84")
def test_an_expired_session_goes_and_only_intents_leave_tombstones(ledger: Ledger) -> None:
    ledger.admit(plan(1), limits={"inactivity_ms": 50})
    ledger.admit([proposed(1, protected=False)], did="d2", limits={"inactivity_ms": 50})
    ledger.finish()
    wait_until(lambda: ledger.session() is None, 5, "the session to expire")
    assert sweep(ledger).expired == 1
    sweep_all(ledger)
    refused(ledger, admit_delivery(delivery(plan(1)), LIMITS, SHARDS), "delivery_retired")
    assert ledger.admit([proposed(1, protected=False)], did="d2").how == "new"


@pytest.mark.proves("C-81")
def test_a_session_with_a_live_run_does_not_expire(ledger: Ledger) -> None:
    ledger.admit(plan(1, level="approve"), limits={"inactivity_ms": 1})
    ledger.outlast(5)
    assert sweep(ledger).expired == 0
    assert ledger.session() is not None


@pytest.mark.proves("C-60")
def test_a_delivery_that_left_no_entry_is_forgotten_with_its_journal(ledger: Ledger) -> None:
    for did in ("d1", None, None):
        ledger.admit([proposed(1, protected=False)], did=did, limits={"journal_ms": 20}, deadline_ms=30)
    ledger.finish()
    ledger.admit(plan(1), did="d2", limits={"journal_ms": 20})
    ledger.finish()
    ledger.outlast(60)
    sweep(ledger)
    fields = ledger.raw.hkeys(key(f"session:{sid_of('s1')}"))
    assert len([name for name in fields if name.startswith(b"d") and len(name) == 33]) == 1
    assert ledger.raw.zcard(key("forget")) == 0
    assert ledger.admit(plan(2), did="d1").how == "new"


@pytest.mark.proves("C-84")
def test_tombstones_go_when_their_time_is_over(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    ledger.run(erase_session(TENANT, "s1", 1, SHARDS))
    ledger.outlast(2)
    sweep(ledger)
    assert ledger.raw.zcard(key("retired")) == 0
    assert ledger.admit(plan(1)).how == "new"


@pytest.mark.proves("C-111")
def test_the_floor_is_written_with_the_trimming(ledger: Ledger) -> None:
    for n in range(4):
        ledger.admit([proposed(n)], did=f"d{n}")
    ledger.finish()
    ids = [stream_id for stream_id, _ in ledger.raw.xrange(key("outcomes"))]
    assert sweep(ledger, bound=4).trimmed == 0
    assert ledger.raw.get(key("outcomes:floor")) is None
    assert sweep(ledger, bound=1).trimmed == 3
    assert ledger.raw.get(key("outcomes:floor")) == ids[2]
    assert [stream_id for stream_id, _ in ledger.raw.xrange(key("outcomes"))] == [ids[3]]


@pytest.mark.proves("C-84")
def test_erasures_ask_for_a_rewrite_once_nothing_is_left_to_delete(ledger: Ledger) -> None:
    for session in ("s1", "s2"):
        ledger.admit(plan(1), session=session)
        ledger.run(erase_session(TENANT, session, 60_000, SHARDS))
    first = sweep(ledger)
    second = sweep(ledger)
    assert (first.dirty, first.more, second.more) == (0, True, False)
    assert second.dirty == int(ledger.raw.get(key("dirty")))


def test_it_sweeps_at_most_once_an_interval(ledger: Ledger) -> None:
    sweep(ledger)
    ledger.admit(plan(1))
    ledger.run(erase_session(TENANT, "s1", 60_000, SHARDS))
    assert unchanged(ledger, sweep_retention(SHARD, 60_000, 1000)).erased == 0


def test_one_that_cannot_be_read_keeps_no_other(ledger: Ledger) -> None:
    for n in range(2):
        ledger.admit(plan(1), session=f"s{n}", limits={"inactivity_ms": 50})
    ledger.finish()
    name = key(f"session:{sid_of('s0')}")
    ledger.raw.hset(name, "meta", b"\x02" + ledger.raw.hget(name, "meta")[1:])
    wait_until(lambda: ledger.session("s1") is None, 5, "the session to expire")
    ledger.raw.zadd(key("expiry"), {sid_of("s0"): 1})
    assert sweep(ledger).expired == 1
    assert ledger.raw.zscore(key("expiry"), sid_of("s0")) > ledger.now()
