"""release_sessions: a clean stop gives sessions back at once."""

from __future__ import annotations

import pytest

from ledger.ownership import release_sessions
from tests.scripts.checking import twice
from tests.support.ledger import SHARD, UNKNOWN, Ledger, begun, key, plan, sid_of


@pytest.mark.proves("C-31", "C-33", "C-34", "C-22")
def test_work_left_makes_it_ready_and_nothing_left_makes_it_nobody_s(ledger: Ledger) -> None:
    for session, calls in (("s1", 1), ("s2", 2)):
        ledger.admit(plan(calls), session=session)
    held = {row.sid: row for row in ledger.claim()}
    for row in held.values():
        ledger.settle(begun(row.work), row.token)
    ledger.raw.delete(key("awake"))
    wake, _ = twice(ledger, release_sessions(SHARD, [(row.sid, row.token) for row in held.values()]))
    assert wake
    assert {sid.decode() for sid in ledger.raw.zrange(key("ready"), 0, -1)} == {sid_of("s1"), sid_of("s2")}
    assert ledger.raw.zcard(key("owned")) == 0
    ledger.finish()
    ledger.admit(plan(1), session="s1", did="d2")
    (row,) = ledger.claim()
    ledger.settle(begun(row.work), row.token, next_step=2)
    assert not ledger.run(release_sessions(SHARD, [(row.sid, row.token)]))
    assert ledger.raw.zcard(key("ready")) == ledger.raw.zcard(key("owned")) == 0


@pytest.mark.proves("C-33")
def test_what_is_still_started_is_published_unknown(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    ledger.run(release_sessions(SHARD, [(work.sid, token)]))
    assert ledger.status(work) is UNKNOWN
    assert [row["mutation_revision"] for row in ledger.outcomes()] == ["2"]


@pytest.mark.proves("C-30")
def test_only_the_owner_releases(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    before = ledger.snapshot()
    ledger.run(release_sessions(SHARD, [(work.sid, token + "x"), (work.sid, token[:-1]), ("0" * 32, token)]))
    after = ledger.snapshot()
    before.pop(key("seq"))
    after.pop(key("seq"))
    assert after == before


def test_one_that_cannot_be_read_keeps_no_other(ledger: Ledger) -> None:
    for n in range(2):
        ledger.admit(plan(1), session=f"s{n}")
    rows = [(row.sid, row.token) for row in ledger.claim()]
    name = key(f"session:{rows[0][0]}")
    ledger.raw.hset(name, "meta", b"\x02" + ledger.raw.hget(name, "meta")[1:])
    ledger.run(release_sessions(SHARD, rows))
    assert ledger.raw.zrange(key("owned"), 0, -1) == [rows[0][0].encode()]
