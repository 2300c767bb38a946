"""How many handlers a worker takes on, who waits for a place, and who may go on after a person has decided."""

from __future__ import annotations

import pytest

from ledger.attempts import Nothing, Work
from ledger.handlers import HandlerOffer, HandlerStart
from workers.handlers.gate import Gate
from workers.handlers.places import Places

SYNC = frozenset({"blocking"})


def places(live: int = 3, sync: int = 1) -> Places:
    """A worker whose handler `blocking` holds a thread."""
    return Places(live, sync, SYNC, frozenset())


def started(name: str) -> HandlerStart:
    """A handler run that a begin answered with."""
    return HandlerStart("s", "r", name, 1, "s1", "ops", "dana", "agent", None, None, None, None, 0, 0, 0, 0, 0)


@pytest.mark.proves("C-71")
def test_what_is_offered_is_reserved_and_what_was_not_used_comes_back() -> None:
    some = places()
    first, second = some.offer(2), some.offer(2)
    assert [(offer.handlers, offer.sync) for offer in (first, second)] == [(2, 1), (1, 0)]
    assert some.free == (0, 0)
    nothing: list[Work | None] = [Nothing("released"), None]
    some.settle(first, nothing)
    some.settle(second, [started("async")])
    assert some.free == (2, 1)
    some.leave("async")
    assert some.free == (3, 1)


@pytest.mark.proves("C-71")
def test_a_blocking_handler_takes_a_thread_s_place_too() -> None:
    some = places()
    some.settle(some.offer(1), [started("blocking")])
    assert some.free == (2, 0)
    assert some.short(some.offer(1))
    some.leave("blocking")
    assert some.free == (2, 1)


def test_without_blocking_handlers_no_offer_is_short_of_threads() -> None:
    some = Places(2, 0, frozenset(), frozenset())
    assert not some.short(some.offer(1))


@pytest.mark.proves("C-31")
def test_who_waits_is_woken_one_at_a_time_by_what_was_lacking() -> None:
    some = places(live=2, sync=1)
    woken: list[str] = []
    some.settle(some.offer(1), [started("blocking")])
    for name in ("first", "second"):
        offer = some.offer(1)
        some.settle(offer, [Nothing("again")])
        some.wait(offer, lambda name=name: woken.append(name))  # type: ignore[misc]  # bound in the loop
    # A place that is no thread's does not help them.
    some.settle(some.offer(1), [Nothing("again")])
    assert woken == []
    some.leave("blocking")
    assert woken == ["first"]
    some.settle(some.offer(1), [Nothing("again")])
    assert woken == ["first", "second"]


@pytest.mark.proves("C-31")
def test_what_became_free_before_the_wait_wakes_at_once() -> None:
    some = places(live=1, sync=1)
    taken = some.offer(1)
    offer = some.offer(1)
    some.settle(offer, [Nothing("again")])
    some.settle(taken, [Nothing("again")])
    woken: list[str] = []
    some.wait(offer, lambda: woken.append("now"))
    assert woken == ["now"]


def test_who_left_is_not_woken() -> None:
    some = places(live=0)
    woken: list[str] = []

    def wake() -> None:
        woken.append("woken")

    some.wait(HandlerOffer(0, 0), wake)
    some.forget(wake)
    some.leave("async")
    assert woken == []


@pytest.mark.proves("C-31")
def test_a_session_that_waits_for_a_person_leaves_its_place_and_gets_in_line_for_one() -> None:
    gate = Gate(room=2)
    freed: list[str] = []
    woken: list[str] = []
    owned = 2
    gate.active = lambda: owned
    gate.place_freed = lambda: freed.append("a place")
    assert gate.full
    gate.park()
    assert not gate.full
    assert freed == ["a place"]
    owned = 3
    assert gate.full

    def wake() -> None:
        woken.append("goes on")

    gate.line_up(wake)
    gate.line_up(wake)
    gate.freed()
    assert woken == []
    owned = 2
    gate.freed()
    gate.freed()
    assert woken == ["goes on"]
    gate.unpark()
    assert gate.full
    gate.line_up(wake)
    gate.leave_line(wake)
    owned = 0
    gate.freed()
    assert woken == ["goes on"]
