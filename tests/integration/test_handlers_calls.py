"""Turn handlers on a real worker: calls, approvals, refusals, narration, clocks."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ledger.errors import Refused
from tests.support.turns import Turns, call
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory, valkey_session: ValkeyProcess) -> Iterator[Turns]:
    """One worker for all stories of this file."""
    valkey_session.client().flushall()
    made = Turns(tmp_path_factory.mktemp("turns"), valkey_session.url)
    made.stack.add_worker()
    yield made
    made.close()


@pytest.fixture
def turns(worker: Turns) -> Turns:
    """A story of its own."""
    return worker.fresh()


@pytest.mark.proves("C-25", "C-62", "C-92")
def test_a_handler_hears_of_a_call_when_it_is_on_disk_and_ends_with_its_narration(turns: Turns) -> None:
    run = turns.deliver("d1", call("pay", id="a"), turns.gate("told"))
    wait_until(lambda: turns.read(run).calls and turns.read(run).calls[0].status == "completed", 10, "the call's end")
    told = turns.turn("d1")
    assert told is not None
    assert not told.finished
    assert turns.arguments_left() == [f"{run.run_id}:in"]
    turns.open("told")
    ended = turns.ended(run)
    assert ended.status == "completed"
    assert ended.narration == [
        {"status": "completed", "recorded": "completed", "result": {"paid": True}, "refusal": None, "reason": None},
        "went on",
    ]
    turn = turns.turn("d1")
    assert turn is not None
    assert turn.finished
    assert ended.logical_turn_id == turn.logical_turn_id
    assert [event.type for event in turns.journal(run)] == [
        "run_started",
        "tool_execution_started",
        "mutation_outcome",
        "tool_result",
        "run_completed",
    ]
    assert turns.effects() == ["a"]


@pytest.mark.proves("C-83")
@pytest.mark.parametrize("handler", ["follow", "follow_blocking"])
def test_text_and_input_are_kept_apart_and_gone_with_the_run(turns: Turns, handler: str) -> None:
    run = turns.deliver("marker-text", call("pay", id="marker-input"), handler=handler)
    assert turns.ended(run).status == "completed"
    assert turns.arguments_left() == []
    dumped = turns.store.command([["HGETALL", f"ml:{{{run.run_id[:2]}}}:run:{run.run_id}"]])[0]
    assert not [value for value in dumped if b"marker-input" in value]


@pytest.mark.proves("C-42", "C-44")
@pytest.mark.parametrize("handler", ["follow", "follow_blocking"])
def test_a_handler_waits_for_another_person_and_goes_on(turns: Turns, handler: str) -> None:
    run = turns.deliver("d1", call("approved_pay", id="a"), call("pay", id="b"), handler=handler)
    asked = turns.asked(run)
    assert turns.read(run).status == "waiting_for_approval"
    for requester in ("agent", "dana"):
        with pytest.raises(Refused, match="same principal or user"):
            turns.decide(asked, by=requester)
    assert turns.effects() == []
    turns.decide(asked)
    ended = turns.ended(run)
    assert [told["status"] for told in ended.narration] == ["completed", "completed"]
    assert turns.effects() == ["a", "b"]


@pytest.mark.proves("C-41")
@pytest.mark.parametrize("handler", ["follow", "follow_blocking"])
def test_a_denied_call_is_a_typed_refusal_and_the_handler_goes_on(turns: Turns, handler: str) -> None:
    run = turns.deliver("d1", call("approved_pay", id="a"), call("pay", id="b"), handler=handler)
    turns.decide(turns.asked(run), "deny")
    ended = turns.ended(run)
    assert ended.status == "completed"
    assert ended.narration[0] == {"refused": "denied", "recorded": None}
    assert ended.narration[1]["status"] == "completed"
    assert turns.effects() == ["b"]


@pytest.mark.proves("C-11", "C-60")
def test_what_is_recorded_is_refused_with_its_record_and_nobody_is_asked(turns: Turns) -> None:
    steps = (call("pay", id="a"), call("pay", id="a"), call("break_off", id="u"), call("break_off", id="u"))
    first = turns.ended(turns.deliver("d1", *steps)).narration
    assert [told.get("status") or told["refused"] for told in first] == [
        "completed",
        "mutation_completed",
        "outcome_unknown",
        "mutation_outcome_unknown",
    ]
    assert [told["recorded"] for told in first] == ["completed", "completed", "outcome_unknown", "outcome_unknown"]
    again = turns.ended(turns.deliver("d1", *steps)).narration
    assert [told["refused"] for told in again] == ["mutation_completed"] * 2 + ["mutation_outcome_unknown"] * 2
    assert turns.effects() == ["a", "u"]


@pytest.mark.proves("C-92", "C-112")
def test_a_handler_that_fails_ends_its_run_failed_and_leaves_its_turn_unfinished(turns: Turns) -> None:
    run = turns.deliver("d1", call("pay", id="a"), {"raise": "secret-text"})
    ended = turns.ended(run)
    assert (ended.status, ended.end_code, ended.narration) == ("failed", "handler_failed", None)
    assert turns.journal(run)[-1].type == "run_failed"
    turn = turns.turn("d1")
    assert turn is not None
    assert not turn.finished
    assert "secret-text" not in turns.stack.logs()
    unknown = turns.ended(turns.deliver("d2", handler="nobody"))
    assert (unknown.status, unknown.end_code) == ("failed", "unknown_handler")


@pytest.mark.proves("C-02", "C-03")
def test_a_call_that_nobody_could_route_or_send_asks_nobody(turns: Turns) -> None:
    unknown = turns.ended(turns.deliver("d1", call("nowhere", id="a"), call("mcp__gone__x", id="a")))
    assert [told["refused"] for told in unknown.narration] == ["unknown_tool", "unknown_tool"]
    assert unknown.calls == ()
    bad_name = turns.ended(turns.deliver("d2", call("no such name")))
    assert (bad_name.status, bad_name.end_code) == ("failed", "invalid_request")


@pytest.mark.proves("C-04")
def test_arguments_changed_while_a_person_decides_are_not_sent(turns: Turns) -> None:
    run = turns.deliver("d1", {"change": "approved_pay", "arguments": {"id": "approved"}})
    asked = turns.asked(run)
    # The change comes 0.1 s after the question.
    time_of_question = time.monotonic()
    wait_until(lambda: time.monotonic() > time_of_question + 0.3, 2, "the handler to change its arguments")
    turns.decide(asked)
    ended = turns.ended(run)
    assert ended.narration[0]["status"] == "not_executed"
    assert ended.narration[0]["refusal"] == "arguments_changed"
    assert ended.calls[0].refusal == "arguments_changed"
    assert turns.effects() == []


@pytest.mark.proves("C-31")
def test_two_handlers_of_a_session_run_side_by_side_with_one_mutation_in_flight(turns: Turns) -> None:
    slow = {"before": 0.3, "after": 0.1}
    one = turns.deliver("d1", turns.gate("both"), call("pay_slowly", id="a", **slow))
    two = turns.deliver("d2", turns.gate("both"), call("pay_slowly", id="b", **slow))
    turns.started("d1")
    turns.started("d2")
    assert [turns.read(run).status.value for run in (one, two)] == ["running", "running"]
    turns.open("both")
    spans = []
    for run in (one, two):
        assert turns.ended(run).status == "completed"
        times = {event.type: event.at for event in turns.journal(run)}
        spans.append((times["tool_execution_started"], times["tool_result"]))
    spans.sort()
    assert spans[0][1] <= spans[1][0]
    assert sorted(turns.effects()) == ["a", "b"]


@pytest.mark.proves("C-31")
def test_a_waiting_handler_holds_back_no_other_run_of_its_session(turns: Turns) -> None:
    waiting = turns.deliver("d1", call("approved_pay", id="a"))
    asked = turns.asked(waiting)
    other = turns.deliver("d2", call("pay", id="b"))
    assert turns.ended(other).status == "completed"
    turns.decide(asked)
    assert turns.ended(waiting).status == "completed"
    assert turns.effects() == ["b", "a"]


@pytest.mark.proves("C-31")
def test_giving_up_the_wait_does_not_take_the_call_back(turns: Turns) -> None:
    give_up = {"give_up": "pay_slowly", "arguments": {"id": "a", "before": 0.5}, "seconds": 0.1}
    ended = turns.ended(turns.deliver("d1", give_up, call("pay", id="b")))
    assert ended.narration[0] == "gave up"
    assert [found.status.value for found in ended.calls] == ["completed", "completed"]
    assert turns.effects() == ["a", "b"]


@pytest.mark.proves("C-31", "C-40")
def test_the_next_call_waits_until_somebody_has_decided_about_the_one_given_up(turns: Turns) -> None:
    give_up = {"give_up": "approved_pay", "arguments": {"id": "a"}, "seconds": 0.1}
    run = turns.deliver("d1", give_up, call("pay", id="b"))
    asked = turns.asked(run)
    since = time.monotonic()
    wait_until(lambda: time.monotonic() > since + 0.5, 2, "the handler to give up and ask for the next call")
    assert [found.status.value for found in turns.read(run).calls] == ["waiting_for_approval"]
    turns.decide(asked)
    assert turns.ended(run).narration == ["gave up", {**turns.read(run).narration[1], "status": "completed"}]
    assert turns.effects() == ["a", "b"]


@pytest.mark.proves("C-24")
def test_a_call_that_nobody_waits_for_ends_before_the_run_does(turns: Turns) -> None:
    give_up = {"give_up": "pay_slowly", "arguments": {"id": "a", "before": 0.5}, "seconds": 0.1}
    run = turns.deliver("d1", give_up)
    ended = turns.ended(run)
    assert [found.status.value for found in ended.calls] == ["completed"]
    assert [event.type for event in turns.journal(run)][-2:] == ["tool_result", "run_completed"]
    not_begun = {"give_up": "approved_pay", "arguments": {"id": "b"}, "seconds": 0.2}
    asked = turns.deliver("d2", not_begun)
    assert [found.status.value for found in turns.ended(asked).calls] == ["cancelled"]
    assert turns.effects() == ["a"]


@pytest.mark.proves("C-51", "C-52")
@pytest.mark.parametrize("handler", ["follow", "follow_blocking"])
def test_a_handler_sees_a_fixed_ceiling_and_a_live_deadline(turns: Turns, handler: str) -> None:
    run = turns.deliver(
        "d1",
        {"clocks": True},
        call("approved_pay", id="a"),
        {"clocks": True},
        handler=handler,
        deadline_ms=60_000,
    )
    asked = turns.asked(run)
    since = time.monotonic()
    wait_until(lambda: time.monotonic() > since + 0.5, 2, "a while in which nobody decides")
    turns.decide(asked)
    before, _, after = turns.ended(run).narration
    assert before["snapshot"] == after["snapshot"] <= before["ceiling"] == after["ceiling"] <= 60.0
    assert before["live"] == pytest.approx(before["snapshot"], abs=0.05)
    # The session clock (880 s) is longer than this run's ceiling, so the ceiling is what shows.
    assert after["live"] == pytest.approx(after["ceiling"], abs=0.01)


@pytest.mark.proves("C-51")
def test_the_session_clock_stands_still_while_a_person_is_asked(turns: Turns) -> None:
    run = turns.deliver("d1", {"clocks": True}, call("approved_pay", id="a"), {"clocks": True})
    asked = turns.asked(run)
    since = time.monotonic()
    wait_until(lambda: time.monotonic() > since + 1.0, 2, "a while in which nobody decides")
    turns.decide(asked)
    before, _, after = turns.ended(run).narration
    gained = after["live"] - before["live"]
    waited = after["now"] - before["now"]
    assert 0.9 <= gained <= waited + 0.01
