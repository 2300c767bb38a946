"""Turn handlers at their limits: ceilings, cancels, pools, settlements that do not land, lost hints."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.errors import Refused
from tests.support.turns import Turns, call
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory, valkey_session: ValkeyProcess) -> Iterator[Turns]:
    """One worker for the stories that need no other settings."""
    valkey_session.client().flushall()
    made = Turns(tmp_path_factory.mktemp("turns"), valkey_session.url, lease=3.0)
    made.stack.add_worker()
    yield made
    made.close()


@pytest.fixture
def turns(worker: Turns) -> Turns:
    """A story of its own."""
    return worker.fresh()


@pytest.mark.proves("C-50")
@pytest.mark.parametrize("handler", ["follow", "follow_blocking"])
def test_the_ceiling_passes_while_a_person_is_asked(turns: Turns, handler: str) -> None:
    run = turns.deliver("d1", call("approved_pay", id="a"), call("pay", id="b"), handler=handler, deadline_ms=1500)
    asked = turns.asked(run)
    ended = turns.ended(run, 8)
    assert ended.status == "failed"
    assert ended.end_code == "request_ceiling"
    assert ended.narration is None
    wait_until(lambda: turns.approval(asked).state in ("expired", "cancelled"), 5, "the end of the request")
    with pytest.raises(Refused, match=r"too late|run ended"):
        turns.decide(asked)
    assert turns.effects() == []


@pytest.mark.proves("C-50")
@pytest.mark.parametrize("handler", ["follow", "follow_blocking"])
def test_a_handler_at_work_past_its_ceiling_is_stopped(turns: Turns, handler: str) -> None:
    run = turns.deliver(
        "d1", call("pay", id="a"), turns.gate("never"), call("pay", id="b"), handler=handler, deadline_ms=1500
    )
    ended = turns.ended(run, 8)
    assert (ended.status, ended.end_code) == ("failed", "request_ceiling")
    assert turns.effects() == ["a"]


@pytest.mark.proves("C-55")
@pytest.mark.parametrize("handler", ["follow", "follow_blocking"])
def test_cancelling_a_waiting_handler_cancels_its_request_and_stops_it(turns: Turns, handler: str) -> None:
    run = turns.deliver("d1", call("approved_pay", id="a"), call("pay", id="b"), handler=handler)
    asked = turns.asked(run)
    assert turns.cancel(run) == "cancelled"
    assert turns.read(run).status == "cancelled"
    assert turns.approval(asked).state == "cancelled"
    wait_until(lambda: "stopped RunCancelled" in turns.words("d1"), 10, "the handler to hear of it")
    assert turns.cancel(run) == "cancelled"
    assert turns.effects() == []
    other = turns.deliver("d2", call("pay", id="c"))
    assert turns.ended(other).status == "completed"


@pytest.mark.proves("C-55")
@pytest.mark.parametrize("handler", ["follow", "follow_blocking"])
def test_cancelling_a_handler_at_work_stops_it(turns: Turns, handler: str) -> None:
    run = turns.deliver("d1", call("pay", id="a"), turns.gate("never"), call("pay", id="b"), handler=handler)
    wait_until(lambda: turns.effects() == ["a"], 10, "the first effect")
    wait_until(lambda: turns.cancel(run) == "cancelled", 5, "the cancel")
    assert turns.ended(run).status == "cancelled"
    turns.started("d1")
    other = turns.deliver("d2", call("pay", id="c"), handler=handler)
    assert turns.ended(other).status == "completed"
    assert turns.effects() == ["a", "c"]


@pytest.mark.proves("C-55")
def test_cancelling_a_call_in_flight_ends_the_run_when_it_is_settled(turns: Turns) -> None:
    run = turns.deliver("d1", call("pay_slowly", id="a", after=30), call("pay", id="b"))
    wait_until(lambda: turns.effects() == ["a"], 10, "the effect")
    assert turns.cancel(run) == "cancelling"
    ended = turns.ended(run, 8)
    assert ended.status == "cancelled"
    assert [found.status.value for found in ended.calls] == ["outcome_unknown"]
    wait_until(lambda: "stopped RunCancelled" in turns.words("d1"), 10, "the handler to hear of it")
    assert turns.effects() == ["a"]


@pytest.mark.proves("C-70")
def test_the_33rd_mutation_of_a_handler_is_refused(turns: Turns) -> None:
    ended = turns.ended(turns.deliver("d1", *(call("pay", id=f"m{n}") for n in range(33))), 30)
    told = [one.get("status") or one["refused"] for one in ended.narration]
    assert told == ["completed"] * 32 + ["mutation_limit"]
    assert len(turns.effects()) == 32


@pytest.mark.proves("C-31")
def test_seventy_blocking_handlers_with_blocking_tools_do_not_lock_each_other_out(turns: Turns) -> None:
    parked = [
        turns.deliver(
            "d1",
            call("approved_pay", id=f"p{n}"),
            call("pay_blocking", id=f"p{n}", seconds=0.05),
            handler="follow_blocking",
            session=f"{turns.session}-{n}",
        )
        for n in range(70)
    ]

    def waiting() -> list[str]:
        return [turns.read(run).status.value for run in parked]

    wait_until(lambda: waiting().count("waiting_for_approval") == 64, 20, "64 handlers that wait")
    assert waiting().count("queued") == 6
    asynchronous = turns.deliver("d2", call("pay", id="async"), session=f"{turns.session}-x")
    assert turns.ended(asynchronous).status == "completed"
    left = set(range(70))

    def approved() -> bool:
        for n in list(left):
            found = turns.read(parked[n])
            if found.status == "waiting_for_approval" and found.calls[0].approval_id:
                turns.decide(found.calls[0].approval_id)
                left.discard(n)
        return not left

    wait_until(approved, 40, "every handler to be asked for")
    for run in parked:
        assert turns.ended(run, 30).status == "completed"
    assert sorted(turns.effects()) == sorted(["async", *(f"p{n}" for n in range(70))])


@pytest.mark.proves("C-24", "C-25")
def test_a_handler_is_told_unknown_while_its_settlement_waits_and_the_run_does_not_end(
    tmp_path: Path, valkey: ValkeyProcess
) -> None:
    turns = Turns(tmp_path / "turns", valkey.url, lease=30.0, settlement_wait_seconds=0.5)
    try:
        turns.stack.add_worker()
        run = turns.deliver("d1", call("pay_slowly", id="a", after=1.0))
        wait_until(lambda: turns.effects() == ["a"], 10, "the effect")
        os.kill(valkey.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: "end" in turns.words("d1"), 10, "the handler to be told and to end")
        finally:
            os.kill(valkey.pid, signal.SIGCONT)
        ended = turns.ended(run)
        assert ended.status == "completed"
        assert ended.narration == [
            {"status": "outcome_unknown", "recorded": None, "result": None, "refusal": None, "reason": None}
        ]
        assert [found.status.value for found in ended.calls] == ["completed"]
        assert [event.type for event in turns.journal(run)][-3:] == ["mutation_outcome", "tool_result", "run_completed"]
    finally:
        turns.close()


@pytest.mark.proves("C-31", "C-44")
def test_a_decision_whose_hint_was_lost_is_found_all_the_same(tmp_path: Path, valkey: ValkeyProcess) -> None:
    turns = Turns(tmp_path / "turns", valkey.url, lease=3.0)
    try:
        turns.stack.add_worker()
        run = turns.deliver("d1", call("approved_pay", id="a"))
        asked = turns.asked(run)
        client = valkey.client()
        (listener,) = [found for found in client.client_list() if found["name"] == "mutation-ledger-signals"]
        client.client_kill_filter(_id=listener["id"])
        turns.decide(asked)
        assert turns.ended(run, 6).status == "completed"
    finally:
        turns.close()


@pytest.mark.proves("C-31")
def test_waiting_sessions_take_no_place_from_others(tmp_path: Path, valkey: ValkeyProcess) -> None:
    turns = Turns(tmp_path / "turns", valkey.url, lease=3.0, workers="concurrency = 2\n")
    try:
        turns.stack.add_worker()
        waiting = [turns.deliver("d1", call("approved_pay", id=f"w{n}"), session=f"w-{n}") for n in range(6)]
        asked = [turns.asked(run) for run in waiting]
        plain = [turns.deliver("d2", call("pay", id=f"p{n}"), session=f"p-{n}") for n in range(6)]
        for run in plain:
            assert turns.ended(run).status == "completed"
        for approval in asked:
            turns.decide(approval)
        for run in waiting:
            assert turns.ended(run).status == "completed"
        assert len(turns.effects()) == 12
    finally:
        turns.close()


@pytest.mark.proves("C-71")
def test_a_worker_takes_on_no_more_handlers_than_it_may(tmp_path: Path, valkey: ValkeyProcess) -> None:
    turns = Turns(tmp_path / "turns", valkey.url, lease=3.0, workers="max_parked = 3\n")
    try:
        turns.stack.add_worker()
        runs = [turns.deliver("d1", call("approved_pay", id=f"w{n}"), session=f"w-{n}") for n in range(5)]

        def statuses() -> list[str]:
            return sorted(turns.read(run).status.value for run in runs)

        full = ["queued"] * 2 + ["waiting_for_approval"] * 3
        wait_until(lambda: statuses() == full, 10, "three handlers that wait")
        since = time.monotonic()
        wait_until(lambda: time.monotonic() > since + 1.0, 2, "a while in which nothing changes")
        assert statuses() == full
        left = {run.run_id for run in runs}

        def approved() -> bool:
            for run in runs:
                found = turns.read(run)
                if run.run_id in left and found.status == "waiting_for_approval" and found.calls[0].approval_id:
                    turns.decide(found.calls[0].approval_id)
                    left.discard(run.run_id)
            return not left

        wait_until(approved, 15, "every handler to be asked for")
        for run in runs:
            assert turns.ended(run).status == "completed"
    finally:
        turns.close()
