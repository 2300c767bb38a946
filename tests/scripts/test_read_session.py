"""read_session: the ledger of a session, whole or one turn."""

from __future__ import annotations

import pytest

from ledger import history
from tests.scripts.checking import unchanged
from tests.support.ledger import FAILED, SHARDS, TENANT, Ledger, plan, proposed
from tests.support.wait import wait_until


@pytest.mark.proves("C-92", "C-110")
def test_turns_come_oldest_first_and_entries_by_first_intent(ledger: Ledger) -> None:
    for n in range(2):
        ledger.admit([proposed(3 * n + 2), proposed(3 * n + 1)], did=f"d{n}", on_error="continue")
    ledger.finish(FAILED)
    session = unchanged(ledger, history.read_session(TENANT, "s1", SHARDS))
    assert session is not None
    runs = [ledger.find_run(f"d{n}") for n in range(2)]
    assert [turn.logical_turn_id for turn in session.turns] == [run.logical_turn_id for run in runs]
    entries = [entry.mutation_id for turn in session.turns for entry in turn.entries]
    assert entries == [call.mutation_id for run in runs for call in run.calls]
    assert [outcome["status"] for outcome in history.outcomes(session)] == ["failed"] * 4
    assert {turn.finished for turn in session.turns} == {True}
    assert history.outcomes(None) == []


@pytest.mark.proves("C-92")
def test_one_turn_by_id_or_by_delivery(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    ledger.admit(plan(1), did="d2")
    work, token = ledger.begin_first()
    by_id = history.read_turn(TENANT, "s1", work.logical_turn_id or "", SHARDS)
    by_delivery = history.read_delivery(TENANT, "s1", "ops", "dana", "d1", SHARDS)
    for call in (by_id, by_delivery):
        found = unchanged(ledger, call)
        assert found is not None
        (turn,) = found.turns
        assert (turn.logical_turn_id, turn.agent, turn.user, turn.finished) == (
            work.logical_turn_id,
            "ops",
            "dana",
            False,
        )
        assert found.owner == token
    for call in (
        history.read_turn(TENANT, "s1", (work.logical_turn_id or "")[:-1] + "9", SHARDS),
        history.read_turn(TENANT, "s1", "no such turn", SHARDS),
        history.read_delivery(TENANT, "s1", "ops", "dana", "d2", SHARDS),
        history.read_delivery(TENANT, "s1", "ops", "eve", "d1", SHARDS),
    ):
        empty = unchanged(ledger, call)
        assert empty is not None
        assert empty.turns == ()


@pytest.mark.proves("C-81")
def test_unknown_foreign_and_expired_sessions_are_not_there(ledger: Ledger) -> None:
    ledger.admit(plan(1), limits={"inactivity_ms": 1})
    assert unchanged(ledger, history.read_session("other", "s1", SHARDS)) is None
    assert unchanged(ledger, history.read_session(TENANT, "s2", SHARDS)) is None
    assert unchanged(ledger, history.read_session(TENANT, "s1", SHARDS)) is not None
    ledger.finish()
    wait_until(lambda: ledger.session() is None, 5, "the session to expire")
    assert unchanged(ledger, history.read_session(TENANT, "s1", SHARDS)) is None
