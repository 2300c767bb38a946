"""erase_session, first step of an erasure: invisible at once, and nothing comes back."""

from __future__ import annotations

import pytest

from ledger.admission import admit_delivery
from ledger.erasure import erase_session, erasure_left
from tests.scripts.checking import refused, twice, unchanged
from tests.support.ledger import LIMITS, SHARDS, TENANT, Ledger, delivery, key, plan, proposed, sid_of


@pytest.mark.proves("C-82", "C-22")
def test_everything_of_it_is_invisible_and_a_repeat_is_confirmed_the_same(ledger: Ledger) -> None:
    flying = ledger.admit(plan(1)).run
    ledger.begin_first()
    waiting = ledger.admit([proposed(5, level="approve")], did="d2").run
    generation = ledger.generation()
    first, second = twice(ledger, erase_session(TENANT, "s1", 60_000, SHARDS))
    assert (first, second) == (True, True)
    assert ledger.session() is None
    assert unchanged(ledger, erasure_left(TENANT, "s1", SHARDS))
    for name in ("approvals", "pending:acme", "owned", "ready", "sessions:acme", "expiry"):
        assert ledger.raw.zcard(key(name)) == 0
    sid = sid_of("s1")
    assert not ledger.raw.exists(key(f"session:{sid}"), key(f"args:{sid}"), key(f"queue:{sid}"))
    assert ledger.raw.hlen(key("asked")) == 0
    ledger.admit(plan(1), did="d9")
    assert ledger.generation() > generation
    assert {flying.run_id, waiting.run_id} & {
        run.decode() for run in ledger.raw.zrange(key(f"queue:{sid}"), 0, -1)
    } == set()


@pytest.mark.proves("C-84")
def test_every_delivery_on_record_is_retired(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    ledger.finish()
    ledger.admit([proposed(1, protected=False)], did="d2")
    ledger.admit(plan(1, level="approve"), did="d3")
    ledger.run(erase_session(TENANT, "s1", 60_000, SHARDS))
    for did, calls in (("d1", plan(1)), ("d2", [proposed(1, protected=False)]), ("d3", plan(1, level="approve"))):
        refused(ledger, admit_delivery(delivery(calls, did=did), LIMITS, SHARDS), "delivery_retired")
    ends = [score for _, score in ledger.raw.zrange(key("retired"), 0, -1, withscores=True)]
    assert len(ends) == 3
    assert all(0 < end - ledger.now() <= 60_000 for end in ends)


@pytest.mark.proves("C-82")
def test_unknown_and_foreign_sessions_are_not_touched(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    for tenant, session in (("other", "s1"), (TENANT, "s2")):
        first, second = twice(ledger, erase_session(tenant, session, 60_000, SHARDS))
        assert (first, second) == (False, False)
    assert ledger.session() is not None


@pytest.mark.proves("C-22", "C-82")
@pytest.mark.parametrize("known", [True, False])
def test_sent_again_it_does_not_erase_a_session_that_took_the_name(ledger: Ledger, known: bool) -> None:
    if known:
        ledger.admit(plan(1))
    call = erase_session(TENANT, "s1", 60_000, SHARDS)
    assert ledger.run(call) is known
    ledger.admit(plan(1), did="newer")
    _, again = twice(ledger, call)
    assert again is known
    assert ledger.session() is not None
    # Asked for anew, it goes.
    assert ledger.run(erase_session(TENANT, "s1", 60_000, SHARDS))
    assert ledger.session() is None


@pytest.mark.proves("C-22")
def test_what_a_repeat_is_known_by_goes_by_itself(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    ledger.run(erase_session(TENANT, "s1", 60_000, SHARDS))
    (mark,) = ledger.raw.keys(key("erasure:*"))
    assert 0 < ledger.raw.pttl(mark) <= 120_000
