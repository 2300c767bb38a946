"""end_handler: a handler has returned; its narration and the run's end are one step."""

from __future__ import annotations

import pytest

from ledger.states import RunStatus
from tests.scripts.checking import refused, twice
from tests.support import handlers
from tests.support.ledger import Ledger, begun, key, sid_of, why


@pytest.mark.proves("C-22", "C-25", "C-70")
@pytest.mark.parametrize(("failed", "status"), [(False, RunStatus.COMPLETED), (True, RunStatus.FAILED)])
def test_run_turn_and_narration_end_together(ledger: Ledger, failed: bool, status: RunStatus) -> None:
    run = handlers.admit(ledger)
    owned = handlers.start(ledger)
    owned.propose(0)
    ledger.settle(begun(owned.begin(2)), owned.token)
    session = ledger.session()
    assert session is not None
    assert [turn.finished for turn in session.turns] == [False]
    first, second = twice(ledger, owned.ending(failed=failed, code="boom" if failed else None, narration='"done"'))
    assert (first.how, second.how, first.status, second.status) == ("ended", "repeated", status, status)
    session = ledger.session()
    assert session is not None
    assert ([turn.finished for turn in session.turns], session.live_runs) == ([True], 0)
    assert (ledger.read(run).status, ledger.raw.hget(key(f"run:{run.run_id}"), "nr")) == (status, b'"done"')
    assert why(owned.begin(3)) == "released"


@pytest.mark.proves("C-70")
def test_without_a_narration_its_turn_is_not_finished(ledger: Ledger) -> None:
    handlers.admit(ledger)
    owned = handlers.start(ledger)
    owned.propose(0)
    ledger.settle(begun(owned.begin(2)), owned.token)
    ledger.run(owned.ending(failed=True, code="boom"))
    session = ledger.session()
    assert session is not None
    assert [turn.finished for turn in session.turns] == [False]


@pytest.mark.proves("C-24")
def test_a_run_with_a_call_in_flight_does_not_end(ledger: Ledger) -> None:
    handlers.admit(ledger)
    owned = handlers.start(ledger)
    owned.propose(0)
    work = begun(owned.begin(2))
    refused(ledger, owned.ending(narration='"done"'), "call_in_flight")
    ledger.settle(work, owned.token)
    assert ledger.run(owned.ending(narration='"done"')).how == "ended"


@pytest.mark.proves("C-40", "C-83")
def test_what_it_still_asked_for_is_cancelled_and_its_input_is_gone(ledger: Ledger) -> None:
    run = handlers.admit(ledger)
    owned = handlers.start(ledger)
    asked = owned.propose(0, level="approve")
    assert ledger.where("marker-") == [key(f"args:{sid_of('s1')}")]
    ledger.run(owned.ending(failed=True))
    assert ledger.approval(asked.approval_id).state == "cancelled"
    assert (ledger.statuses(run), ledger.where("marker-")) == (["cancelled"], [])


@pytest.mark.proves("C-30")
def test_only_the_owner_ends_it_and_an_ended_run_stays_as_it_is(ledger: Ledger) -> None:
    run = handlers.admit(ledger)
    owned = handlers.start(ledger)
    stranger = handlers.Owned(ledger, owned.start, owned.token + "x")
    refused(ledger, stranger.ending(), "lease_lost")
    ledger.cancel(run)
    first, second = twice(ledger, owned.ending(narration='"done"'))
    assert (first.how, second.how, first.status) == ("over", "over", "cancelled")


@pytest.mark.proves("C-33")
@pytest.mark.parametrize(("replayable", "ends"), [(False, True), (True, False)])
def test_an_owner_s_loss_ends_a_run_with_an_intent_unless_it_is_replayable(
    ledger: Ledger, replayable: bool, ends: bool
) -> None:
    run = handlers.admit(ledger)
    owned = handlers.start(ledger, replayable=replayable)
    owned.propose(0)
    work = begun(owned.begin(2))
    ledger.reclaim()
    if ends:
        assert ledger.run(owned.ending(narration='"late"')).how == "over"
    else:
        refused(ledger, owned.ending(narration='"late"'), "lease_lost")
    now = ledger.read(run)
    assert (now.status.ended, now.end_code) == (ends, "interrupted" if ends else None)
    assert ledger.status(work) == "outcome_unknown"


@pytest.mark.proves("C-33")
def test_a_run_without_an_intent_is_started_at_most_four_times(ledger: Ledger) -> None:
    run = handlers.admit(ledger)
    for lost in range(4):
        assert handlers.start(ledger).start.earlier_starts == lost
        ledger.reclaim()
    assert (ledger.read(run).status, ledger.read(run).end_code) == (RunStatus.FAILED, "interrupted")
    assert ledger.claim() == []
