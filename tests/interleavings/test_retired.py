"""Every order of steps: a turn under a live run is never pruned; what was retired never runs as new (C-70, C-84)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from ledger.admission import Admitted
from ledger.erasure import erase_session, sweep_retention
from ledger.errors import Refused
from tests.support.interleaving import Order, Prepared, Worker, emptied, orders
from tests.support.ledger import SHARD, SHARDS, TENANT, Ledger, key, plan, proposed, sid_of

TURNS = 50
TOMBSTONE_MS = 60_000


@pytest.fixture(scope="module")
def full(valkey_url: str) -> Iterator[Prepared]:
    """A session of 50 finished, settled turns, whose oldest is that of delivery `d0`."""
    ledger = emptied(valkey_url)
    for n in range(TURNS):
        ledger.admit(plan(1), did=f"d{n}")
    ledger.finish()
    ledger.close()
    prepared = Prepared(valkey_url)
    yield prepared
    prepared.close()


@pytest.fixture(scope="module")
def one(valkey_url: str) -> Iterator[Prepared]:
    """A session with one finished turn, that of delivery `d0`."""
    ledger = emptied(valkey_url)
    ledger.admit(plan(1), did="d0")
    ledger.finish()
    ledger.close()
    prepared = Prepared(valkey_url)
    yield prepared
    prepared.close()


def _turns(ledger: Ledger) -> list[str]:
    session = ledger.session()
    return [] if session is None else [turn.logical_turn_id for turn in session.turns]


def _admitted(admit: Callable[[], Admitted], *codes: str) -> Admitted | None:
    try:
        return admit()
    except Refused as refused:
        if refused.code in codes:
            return None
        raise


@pytest.mark.proves("C-70", "C-63")
@pytest.mark.parametrize("order", orders(1, 2, 4), ids=str)
def test_a_turn_under_a_live_run_is_never_pruned(full: Prepared, order: Order) -> None:
    ledger = full.again()
    worker = Worker(ledger)
    oldest = _turns(ledger)[0]
    continued: list[Admitted] = []
    fresh = iter(("new-1", "new-2"))

    def keep_on() -> None:
        admitted = _admitted(
            lambda: ledger.admit([proposed(7)], did="more", logical_turn_id=oldest), "logical_turn_unavailable"
        )
        continued.extend([admitted] if admitted else [])

    actors = (keep_on, lambda: ledger.admit([proposed(8)], did=next(fresh)), worker.step)
    for actor in order:
        actors[actor]()
        if continued and not ledger.read(continued[0].run).status.ended:
            assert oldest in _turns(ledger)
    worker.drain()
    assert len(_turns(ledger)) == TURNS
    mine = [work for work in worker.begun if work.delivery_id == "more"]
    if continued:
        # Admitted in time: done once, in that very turn.
        assert [work.logical_turn_id for work in mine] == [oldest]
        assert ledger.statuses(continued[0].run) == ["completed"]
    else:
        assert mine == []
        assert oldest not in _turns(ledger)
    ledger.close()


def _never_again(
    prepared: Prepared, order: Order, retire: Callable[[Ledger, Worker], list[Callable[[], object]]]
) -> None:
    """Redelivery, a worker and what retires the delivery, in this order: its mutation is never begun again."""
    ledger = prepared.again()
    worker = Worker(ledger)
    steps = iter(retire(ledger, worker))
    answers: list[str] = []

    def redeliver() -> None:
        admitted = _admitted(lambda: ledger.admit(plan(1), did="d0"), "delivery_retired")
        answers.append(admitted.how if admitted else "delivery_retired")

    def go_on() -> None:
        next(steps)()

    actors = (redeliver, worker.step, go_on)
    for actor in order:
        actors[actor]()
    redeliver()
    worker.drain()
    assert answers[-1] == "delivery_retired"
    assert set(answers) <= {"redelivered", "attached", "delivery_retired"}
    assert [work for work in worker.begun if work.delivery_id == "d0"] == []
    ledger.close()


def _sweep(ledger: Ledger) -> Callable[[], object]:
    def sweep() -> None:
        ledger.raw.delete(key("swept:retention"))
        ledger.run(sweep_retention(SHARD, TOMBSTONE_MS, 1000))

    return sweep


@pytest.mark.proves("C-82", "C-84")
@pytest.mark.parametrize("order", orders(1, 2, 3), ids=str)
def test_an_erased_delivery_never_runs_as_new(one: Prepared, order: Order) -> None:
    def retire(ledger: Ledger, _: Worker) -> list[Callable[[], object]]:
        erase = erase_session(TENANT, "s1", TOMBSTONE_MS, SHARDS)
        return [lambda: ledger.run(erase), _sweep(ledger), _sweep(ledger)]

    _never_again(one, order, retire)


@pytest.mark.proves("C-81", "C-84")
@pytest.mark.parametrize("order", orders(1, 2, 3), ids=str)
def test_an_expired_delivery_never_runs_as_new(one: Prepared, order: Order) -> None:
    def retire(ledger: Ledger, _: Worker) -> list[Callable[[], object]]:
        def pass_time() -> None:
            # As if its time had been over for long; a run that is live then still holds it.
            if ledger.raw.exists(key(f"session:{sid_of('s1')}")):
                ledger.rewrite(f"session:{sid_of('s1')}", "meta", {"lm": 0, "ia": 1})
                ledger.raw.zadd(key("expiry"), {sid_of("s1"): 1})

        def pass_more() -> None:
            pass_time()
            _sweep(ledger)()

        return [pass_time, _sweep(ledger), pass_more]

    _never_again(one, order, retire)


@pytest.mark.proves("C-70", "C-84")
@pytest.mark.parametrize("order", orders(1, 2, 3), ids=str)
def test_a_pruned_delivery_never_runs_as_new(full: Prepared, order: Order) -> None:
    def retire(ledger: Ledger, worker: Worker) -> list[Callable[[], object]]:
        def press() -> None:
            ledger.admit([proposed(9)], did="press")
            worker.drain()

        return [lambda: ledger.admit([proposed(8)], did="new"), worker.step, press]

    _never_again(full, order, retire)


@pytest.mark.proves("C-82")
@pytest.mark.parametrize("order", orders(1, 2, 2), ids=str)
def test_a_delivery_that_waited_when_it_was_erased_is_never_begun(one: Prepared, order: Order) -> None:
    ledger = one.again()
    worker = Worker(ledger)
    run = ledger.admit([proposed(5, level="approve")], did="d5").run
    erased: list[int] = []
    steps = iter([lambda: ledger.run(erase_session(TENANT, "s1", TOMBSTONE_MS, SHARDS)), _sweep(ledger)])

    def approve() -> None:
        with suppress(Refused):
            ledger.decide(run.calls[0].approval_id or "")

    def erase() -> None:
        next(steps)()
        erased.append(len(worker.begun))

    actors = (approve, worker.step, erase)
    for actor in order:
        actors[actor]()
    worker.drain()
    assert len(worker.begun) == erased[0]
    ledger.close()
