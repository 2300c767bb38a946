"""accept_shard: a person accepts a store that went back; nothing given before counts any more."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.errors import Refused, StoreWentBack
from ledger.states import RunStatus
from ledger.store.scripts import SCRIPTS
from tests.support.ledger import SEQ, UNKNOWN, Ledger, key, plan, proposed, sid_of

SCRIPT = SCRIPTS["accept_shard"].source


def accept(ledger: Ledger, store_id: str = "new", most: int = 100) -> tuple[int, int]:
    """Accepts the shard; calls it took, and runs that ended."""
    ended = 0
    for calls in range(1, 100):
        _, more, count = ledger.raw.eval(SCRIPT, 1, SEQ, store_id, most)
        ended += count
        assert (ledger.raw.hget(SEQ, "refused") is None) == (more == 0)
        if not more:
            return calls, ended
    raise AssertionError("accepting does not come to an end")


def go_back(ledger: Ledger) -> None:
    """The store lost a write that was confirmed."""
    ledger.raw.hincrby(SEQ, "n", -1)
    with pytest.raises(StoreWentBack):
        ledger.claim()


@pytest.mark.proves("C-27")
def test_started_entries_become_unknown_live_runs_end_and_approvals_pay_for_nothing(ledger: Ledger) -> None:
    flying = ledger.admit(plan(2), session="s1").run
    work, token = ledger.begin_first()
    queued = ledger.admit([proposed(1, level="approve")], session="s2").run
    ledger.approve_all(queued)
    waiting = ledger.admit(plan(2, level="approve"), session="s3").run
    done = ledger.admit(plan(1), session="s4", did="d4").run
    (other,) = [row for row in ledger.claim(most=2) if row.sid == sid_of("s4")]
    ledger.settle(other.work, other.token, next_step=2)  # type: ignore[arg-type]  # a begun call
    go_back(ledger)
    accept(ledger)
    assert ledger.status(work) is UNKNOWN
    assert [ledger.statuses(run) for run in (flying, waiting)] == [
        ["outcome_unknown", "cancelled"],
        ["cancelled", "cancelled"],
    ]
    for run in (flying, queued, waiting):
        assert (ledger.read(run).status, ledger.read(run).end_code) == (RunStatus.CANCELLED, "store_accepted")
    assert ledger.read(done).status is RunStatus.COMPLETED
    assert ledger.claim() == []
    assert ledger.raw.zcard(key("approvals")) == ledger.raw.zcard(key("owned")) == ledger.raw.zcard(key("ready")) == 0
    with pytest.raises(Refused, match="another owner") as caught:
        ledger.begin(work.sid, token, 2)
    assert caught.value.code == "lease_lost"
    assert ledger.settle(work, token).how == "late"


@pytest.mark.proves("C-27")
def test_processes_with_an_earlier_id_adopt_the_new_one(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    for store_id in ("second", "third"):
        go_back(ledger)
        accept(ledger, store_id)
        assert ledger.admit(plan(1), did=f"d-{store_id}").how == "new"
        assert ledger.store.view.ids == [store_id.encode()]


@pytest.mark.proves("C-27")
def test_an_emptied_store_can_be_accepted(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    ledger.raw.flushall()
    with pytest.raises(StoreWentBack):
        ledger.claim()
    accept(ledger)
    assert ledger.admit(plan(1)).how == "new"


@pytest.mark.proves("C-27")
def test_an_answer_that_was_on_its_way_does_not_refuse_the_accepted_store(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    old_id = ledger.store.view.ids[0]
    ledger.raw.flushall()
    with pytest.raises(StoreWentBack):
        ledger.claim()
    accept(ledger)
    ledger.admit(plan(1))
    ledger.store.view.confirmed(0, 10_000, old_id)
    assert ledger.admit(plan(1), did="d2").how == "new"
    ledger.store.view.adopt(0, b"new")
    assert ledger.store.view.seen[0] == int(ledger.raw.hget(SEQ, "n"))


@pytest.mark.proves("C-27")
@pytest.mark.parametrize("most", [1, 2, 3])
def test_it_is_bounded_and_reaches_every_run_of_a_long_queue(ledger: Ledger, most: int) -> None:
    runs = [ledger.admit(plan(1), did=f"d{n}").run for n in range(7)]
    runs += [ledger.admit([proposed(1, level="approve")], session="s2", did=f"d{n}").run for n in range(3)]
    ledger.claim()
    calls, ended = accept(ledger, most=most)
    assert (ended, {ledger.read(run).status for run in runs}) == (10, {RunStatus.CANCELLED})
    assert calls >= 10 // most
    session = ledger.session("s2")
    assert session is not None
    assert session.live_runs == 0


@pytest.mark.proves("C-27")
def test_accepting_the_same_id_again_changes_nothing(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    accept(ledger)
    ledger.admit(plan(1), did="d2")
    ledger.begin_first()
    before: Any = ledger.snapshot()
    accept(ledger)
    after = ledger.snapshot()
    assert int(after.pop(SEQ)[1][b"n"]) == int(before.pop(SEQ)[1][b"n"]) + 1
    assert after == before


def test_a_ready_session_whose_record_is_gone_does_not_hold_it_up(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    ledger.raw.delete(key(f"session:{sid_of('s1')}"))
    assert accept(ledger) == (1, 0)
    assert not ledger.raw.exists(key(f"queue:{sid_of('s1')}"))
