"""The guard that every script runs first: a store that lost confirmed writes is refused before any other write."""

from __future__ import annotations

from collections.abc import Callable

import msgpack
import pytest

from ledger.admission import admit_delivery
from ledger.errors import StoreWentBack
from ledger.runs import read_run
from ledger.store.codec import FORMAT
from ledger.store.scripts import SCRIPTS
from tests.support import snapshot
from tests.support.ledger import LIMITS, SEQ, SHARD, SHARDS, TENANT, Ledger, delivery, key, plan

GUARDED = sorted(SCRIPTS.keys() - {"init_shard", "accept_shard"})


def call(ledger: Ledger, name: str, store_id: str | bytes, seen: int) -> str:
    """Evaluates a script with arguments that only its guard looks at; the error's text."""
    source = SCRIPTS[name].source
    empty = FORMAT if "_request(ARGV[3])" in source else msgpack.packb({})
    arguments = [store_id, seen, empty, "", "", "0", "0"]
    with pytest.raises(Exception) as caught:  # noqa: PT011 - redis-py's class depends on the code in the text
        ledger.raw.eval(source, 1, SEQ, *arguments)
    return str(caught.value)


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    """A ledger with something in every state."""
    ledger.admit(plan(2))
    ledger.begin_first()
    ledger.admit(plan(1, level="approve"), did="d2")
    return ledger


def only_refused(before: snapshot.Snapshot, after: snapshot.Snapshot) -> bool:
    """Whether the mark `refused` is all that came to the store."""
    fields = {name: value for name, value in after[SEQ][1].items() if name != b"refused"}
    return {**after, SEQ: (after[SEQ][0], fields, after[SEQ][2])} == before and b"refused" in after[SEQ][1]


@pytest.mark.proves("C-27")
@pytest.mark.parametrize("name", GUARDED)
@pytest.mark.parametrize("fault", ["foreign id", "older counter"])
def test_a_foreign_id_or_an_older_counter_refuses_the_store(filled: Ledger, name: str, fault: str) -> None:
    store_id, n = filled.raw.hmget(SEQ, "store", "n")
    before = filled.snapshot()
    answer = call(filled, name, "foreign" if fault == "foreign id" else store_id, int(n) + (fault == "older counter"))
    assert answer.startswith("STORE_WENT_BACK")
    assert only_refused(before, filled.snapshot())


@pytest.mark.proves("C-27")
@pytest.mark.parametrize("name", GUARDED)
def test_a_refused_store_answers_nothing_else(filled: Ledger, name: str) -> None:
    store_id, n = filled.raw.hmget(SEQ, "store", "n")
    filled.raw.hset(SEQ, "refused", "x")
    before = filled.snapshot()
    assert call(filled, name, store_id, int(n)).startswith("STORE_WENT_BACK")
    assert filled.snapshot() == before


@pytest.mark.proves("C-27")
@pytest.mark.parametrize("name", GUARDED)
def test_an_id_that_was_accepted_away_is_told_the_new_one(filled: Ledger, name: str) -> None:
    store_id, n = filled.raw.hmget(SEQ, "store", "n")
    filled.raw.hset(SEQ, mapping={"store": "new", f"was:{store_id.decode()}": "1"})
    before = filled.snapshot()
    answer = call(filled, name, store_id, int(n))
    assert answer.partition(" script:")[0].split()[:2] == ["STORE_CHANGED", "new"]
    assert filled.snapshot() == before


@pytest.mark.proves("C-27")
def test_an_emptied_store_is_refused_by_the_next_call_of_anybody(ledger: Ledger) -> None:
    run = ledger.admit(plan(1)).run
    ledger.raw.flushall()
    with pytest.raises(StoreWentBack):
        ledger.run(read_run(SHARD, run.run_id, TENANT))
    with pytest.raises(StoreWentBack):
        ledger.run(admit_delivery(delivery(), LIMITS, SHARDS))
    assert ledger.raw.keys() == [SEQ.encode()]


@pytest.mark.proves("C-27")
def test_a_store_put_back_is_refused_once_it_misses_a_confirmed_write(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    older = ledger.raw.hget(SEQ, "n")
    ledger.admit(plan(1), did="d2")
    ledger.raw.hset(SEQ, "n", older)
    with pytest.raises(StoreWentBack):
        ledger.claim()
    assert ledger.raw.zcard(key("ready")) == 1


@pytest.mark.proves("C-22", "C-27")
def test_every_confirmed_write_raises_the_counter(ledger: Ledger) -> None:
    seen = [ledger.store.view.seen[SHARD]]
    steps: list[Callable[[], object]] = [
        lambda: ledger.admit(plan(1)),
        lambda: ledger.admit(plan(1)),
        ledger.claim,
        ledger.sweep,
        ledger.reclaim,
    ]
    for step in steps:
        step()
        seen.append(ledger.store.view.seen[SHARD])
        assert seen[-1] == int(ledger.raw.hget(SEQ, "n"))
    assert seen[0] < seen[1] < seen[2] < seen[3] == seen[4] < seen[5]
