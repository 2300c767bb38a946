"""A session holds 50 logical turns: which one makes room, and what its going leaves behind (lib/retire.lua)."""

from __future__ import annotations

import pytest

from ledger.admission import admit_delivery
from ledger.attempts import Begun, Work
from ledger.erasure import erase_session, sweep_retention
from ledger.states import MutationStatus
from tests.scripts.checking import refused
from tests.support.ledger import (
    COMPLETED,
    LIMITS,
    NOT_EXECUTED,
    SHARD,
    SHARDS,
    TENANT,
    UNKNOWN,
    Ledger,
    begun,
    delivery,
    key,
    plan,
    proposed,
    sid_of,
)

TURNS = 50


def turn(ledger: Ledger, did: str, status: MutationStatus = COMPLETED) -> Begun:
    """One finished turn with one mutation; the attempt."""
    ledger.admit(plan(1), did=did)
    work, token = ledger.begin_first()
    ledger.settle(work, token, status, next_step=2)
    return work


def fill(ledger: Ledger, first: dict[str, MutationStatus]) -> list[str]:
    """Fills the session; the oldest turns as `first` says, the rest unknown. The turns' ids, oldest first."""
    statuses = {**first, **{f"u{n}": UNKNOWN for n in range(TURNS - len(first))}}
    for did in statuses:
        ledger.admit(plan(1), did=did)
    work: Work | None
    work, token = ledger.begin_first()
    ids = []
    for step, status in enumerate(statuses.values(), start=2):
        ids.append(begun(work).logical_turn_id or "")
        work = ledger.settle(begun(work), token, status, next_step=step).work
    return ids


def turns(ledger: Ledger) -> list[str]:
    session = ledger.session()
    assert session is not None
    return [one.logical_turn_id for one in session.turns]


@pytest.mark.proves("C-70", "C-84", "C-63")
def test_the_oldest_finished_and_settled_turn_goes_and_leaves_tombstones(ledger: Ledger) -> None:
    statuses = {"d0": UNKNOWN, "d1": NOT_EXECUTED, "d2": COMPLETED, "d3": COMPLETED}
    ids = fill(ledger, statuses)
    assert turns(ledger) == ids
    published = len(ledger.outcomes())
    new = turn(ledger, "new")
    assert turns(ledger) == [*ids[:2], *ids[3:], new.logical_turn_id]
    assert len(ledger.outcomes()) == published
    assert ids[2] not in {row["logical_turn_id"] for row in ledger.outcomes()}
    refused(ledger, admit_delivery(delivery(plan(1), did="d2"), LIMITS, SHARDS), "delivery_retired")
    continuing = delivery(plan(1), did="x", logical_turn_id=ids[2])
    refused(ledger, admit_delivery(continuing, LIMITS, SHARDS), "logical_turn_unavailable")


@pytest.mark.proves("C-70")
def test_settled_ones_go_before_those_that_never_ran_and_unknown_ones_never(ledger: Ledger) -> None:
    ids = fill(ledger, {"d0": NOT_EXECUTED, "d1": UNKNOWN, "d2": COMPLETED, "d3": NOT_EXECUTED})
    gone = []
    for n in range(3):
        before = turns(ledger)
        turn(ledger, f"new{n}", UNKNOWN)
        gone += [one for one in before if one not in turns(ledger)]
    assert gone == [ids[2], ids[0], ids[3]]
    run = ledger.admit([proposed(1, level="approve"), proposed(2)], did="last").run
    assert [(call.refusal, call.approval_id) for call in run.calls] == [("turn_limit", None)] * 2
    assert ledger.raw.zcard(key("unknowns:acme")) == TURNS


@pytest.mark.proves("C-70")
def test_without_room_at_begin_the_call_is_refused(ledger: Ledger) -> None:
    fill(ledger, {"d0": COMPLETED})
    runs = [ledger.admit([proposed(9)], did=f"new{n}").run for n in range(2)]
    ledger.finish(UNKNOWN)
    assert [ledger.read(run).calls[0].refusal for run in runs] == [None, "turn_limit"]
    assert len(turns(ledger)) == TURNS


@pytest.mark.proves("C-70")
@pytest.mark.parametrize("live", ["waiting", "queued"])
def test_a_turn_with_a_live_run_is_never_pruned(ledger: Ledger, live: str) -> None:
    ids = fill(ledger, {"d0": COMPLETED, "d1": COMPLETED})
    level = "approve" if live == "waiting" else None
    held = ledger.admit([proposed(7, level=level)], did="more", logical_turn_id=ids[0]).run
    other = ledger.admit(plan(1), did="new").run
    if live == "queued":
        ledger.raw.zadd(key(f"queue:{held_sid(ledger)}"), {held.run_id: 10_000})
    work, token = ledger.begin_first()
    assert work.run_id == other.run_id
    assert turns(ledger) == [ids[0], *ids[2:], work.logical_turn_id]
    ledger.settle(work, token)


def held_sid(ledger: Ledger) -> str:
    """The hash of the one session that has a queue."""
    (name,) = ledger.raw.keys(key("queue:*"))
    found: str = name.decode().rpartition(":")[2]
    return found


@pytest.mark.proves("C-70")
def test_runs_that_change_nothing_use_no_turn(ledger: Ledger) -> None:
    ids = fill(ledger, {"d0": COMPLETED})
    for n in range(3):
        ledger.admit([proposed(n, protected=False)], did=f"read{n}")
    ledger.finish()
    assert turns(ledger) == ids


def pruned(ledger: Ledger) -> set[str]:
    """Runs of pruned turns that an erasure would find."""
    return {run.decode() for run in ledger.raw.zrange(key(f"pruned:{sid_of('s1')}"), 0, -1)}


@pytest.mark.proves("C-82")
@pytest.mark.parametrize("most", [1, 50])
def test_the_runs_of_a_pruned_turn_go_with_the_session(ledger: Ledger, most: int) -> None:
    fill(ledger, {"d0": NOT_EXECUTED})
    runs = {ledger.find_run("d0").run_id}
    turn(ledger, "d0")
    runs.add(ledger.find_run("d0").run_id)
    turn(ledger, "more")
    names = [key(f"run:{run}{rest}") for run in runs for rest in ("", ":journal")]
    assert (len(runs), ledger.raw.exists(*names), pruned(ledger)) == (2, 4, runs)
    ledger.run(erase_session(TENANT, "s1", 60_000, SHARDS))
    assert pruned(ledger) == set()
    while ledger.raw.zcard(key("erase")):
        ledger.raw.delete(key("swept:retention"))
        ledger.run(sweep_retention(SHARD, 60_000, 1000, most=most))
    assert ledger.raw.exists(*names) == 0
    assert ledger.raw.keys(key("erased:*")) == []


@pytest.mark.proves("C-82")
def test_a_session_lists_no_pruned_run_whose_life_is_over(ledger: Ledger) -> None:
    fill(ledger, {f"d{n}": COMPLETED for n in range(3)})
    first, gone, last = (ledger.find_run(f"d{n}").run_id for n in range(3))
    turn(ledger, "one more")
    assert pruned(ledger) == {first}
    ledger.raw.zadd(key(f"pruned:{sid_of('s1')}"), {first: ledger.now() - 1})
    ledger.raw.delete(key(f"run:{gone}"))
    turn(ledger, "another")
    assert pruned(ledger) == set()
    turn(ledger, "and another")
    assert pruned(ledger) == {last}
