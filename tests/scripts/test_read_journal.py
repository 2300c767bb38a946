"""read_journal: numbered events that survive, bounded without losing what ends something."""

from __future__ import annotations

import pytest

from ledger.erasure import erase_session
from ledger.records import Run
from ledger.runs import JournalPage, read_journal
from tests.scripts.checking import unchanged
from tests.support.ledger import LIMITS, SHARD, SHARDS, TENANT, UNKNOWN, Ledger, key, plan, proposed

BOUND = 1000


def page(ledger: Ledger, run: Run, after: int = 0, most: int = 5000) -> JournalPage:
    return unchanged(ledger, read_journal(SHARD, run.run_id, TENANT, after, most))


def lengthen(ledger: Ledger, run: Run, length: int) -> None:
    """Fills a journal with copies of its first event."""
    name = key(f"run:{run.run_id}:journal")
    event = ledger.raw.lindex(name, 0)
    ledger.raw.rpush(name, *[event] * (length - ledger.raw.llen(name)))


@pytest.mark.proves("C-112")
def test_events_are_numbered_by_position_and_read_from_anywhere(ledger: Ledger) -> None:
    run = ledger.admit(plan(1)).run
    ledger.finish()
    whole = page(ledger, run)
    assert [(event.number, event.type) for event in whole.events] == [
        (1, "run_started"),
        (2, "tool_execution_started"),
        (3, "mutation_outcome"),
        (4, "tool_result"),
        (5, "run_completed"),
    ]
    assert (whole.length, whole.ended, whole.known) == (5, True, True)
    rest = page(ledger, run, after=3, most=1)
    assert [(event.number, event.type) for event in rest.events] == [(4, "tool_result")]
    assert page(ledger, run, after=5).events == page(ledger, run, after=9).events == ()
    times = [event.at for event in whole.events]
    assert times == sorted(times)


@pytest.mark.proves("C-112")
@pytest.mark.parametrize("length", [BOUND - 5, BOUND - 3, BOUND - 2, BOUND - 1, BOUND, BOUND + 7])
def test_at_its_bound_it_says_truncated_once_and_keeps_what_ends_something(ledger: Ledger, length: int) -> None:
    run = ledger.admit(plan(3)).run
    lengthen(ledger, run, length)
    ledger.finish()
    types = [event.type for event in page(ledger, run).events][length:]
    assert types.count("truncated") == 1
    after = types[types.index("truncated") + 1 :]
    assert set(after) == {"mutation_outcome", "run_completed"}
    assert types.count("mutation_outcome") == 3
    assert types[-1] == "run_completed"
    assert length + types.index("truncated") + 1 >= BOUND


@pytest.mark.proves("C-112")
def test_a_terminal_event_on_the_last_place_does_not_swallow_the_notice(ledger: Ledger) -> None:
    run = ledger.admit(plan(2)).run
    work, token = ledger.begin_first()
    lengthen(ledger, run, BOUND - 1)
    ledger.settle(work, token, next_step=2)
    types = [event.type for event in page(ledger, run).events][BOUND - 1 :]
    assert types == ["mutation_outcome", "truncated"]


@pytest.mark.proves("C-112")
def test_it_is_kept_for_its_time_and_goes_with_the_run(ledger: Ledger) -> None:
    run = ledger.admit([proposed(0), proposed(1, level="approve")]).run
    work, token = ledger.begin_first()
    assert ledger.raw.ttl(key(f"run:{run.run_id}:journal")) == -1
    ledger.settle(work, token, UNKNOWN, next_step=2)
    names = [f"run:{run.run_id}:journal", f"run:{run.run_id}", f"approval:{run.calls[1].approval_id}"]
    before = {ledger.raw.pexpiretime(key(name)) for name in names}
    assert len(before) == 1
    assert abs(before.pop() - ledger.now() - LIMITS.journal_ms) < 5_000
    ledger.reconcile(work, completed=True)
    assert ledger.raw.pexpiretime(key(names[0])) == ledger.raw.pexpiretime(key(names[1]))
    assert page(ledger, run).events[-1].type == "mutation_outcome"


@pytest.mark.proves("C-82", "C-84")
def test_foreign_unknown_and_erased_journals_are_not_there(ledger: Ledger) -> None:
    run = ledger.admit(plan(1)).run
    for run_id, tenant in ((run.run_id, "other"), ("00" + "0" * 32, TENANT)):
        answer = unchanged(ledger, read_journal(SHARD, run_id, tenant, 0))
        assert (answer.known, answer.events, answer.length) == (False, (), 0)
    ledger.run(erase_session(TENANT, "s1", 1000, SHARDS))
    assert not page(ledger, run).known
    ledger.admit(plan(1), did="d2")
    assert not page(ledger, run).known
