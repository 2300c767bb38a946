"""Engine against a running stack: deliveries, continuation, the ledger for a trusted host (contract, section 16)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import ledger
from ledger.engine import Adapter, ContinuationUnavailable, Engine, IncomingMessage
from ledger.errors import InvalidRequest, Refused
from ledger.identity import mutation_identity
from tests.support.hosting import Hosting, Listening, hosting, message
from tests.support.stack import Api
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

METADATA = {
    "id": "dash-7",
    "title": "Checkout errors",
    "url": "https://example.test/d/7",
    "normalized_title": "checkout errors",
    "scope_identity": "prod",
}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosting]:
    """One stack for this module; each test names a session of its own."""
    server = ValkeyProcess(tmp_path_factory.mktemp("valkey")).start()
    with hosting(tmp_path_factory.mktemp("stack"), server.url) as made:
        yield made
    server.stop()


@pytest.fixture(scope="module")
def engine(host: Hosting) -> Engine:
    return host.engine()


@pytest.mark.proves("C-25", "C-62", "C-110")
def test_a_delivery_is_told_as_it_goes_and_answered_at_its_end(host: Hosting, engine: Engine) -> None:
    adapter = Listening()
    told = message("told", ("pay", {"id": "told-1"}), ("break_off", {"id": "told-2"}), on_error="continue")
    result = engine.handle_with_results(told, adapter)
    assert (result.status, result.still_running, result.session_id) == ("failed", False, "told")
    assert [call["status"] for call in result.calls] == ["completed", "outcome_unknown"]
    assert [(revision, outcome["status"]) for revision, outcome in adapter.outcomes] == [
        (2, "completed"),
        (4, "outcome_unknown"),
    ]
    assert [outcome for _, outcome in adapter.outcomes] == engine.sessions.mutation_outcomes("told")
    assert adapter.words[:2] == ["run_started", "tool_execution_started"]
    assert adapter.words[-1] == "run_failed"
    assert result.logical_turn_id == adapter.outcomes[0][1]["logical_turn_id"]
    assert host.effects().count("told-1") == 1


@pytest.mark.proves("C-92")
def test_the_snapshot_is_that_of_the_source_field_for_field(engine: Engine) -> None:
    told = message("state", ("pay", {"id": "state-1"}), delivery_id="msg-1")
    assert engine.mutation_state(told) is None
    assert engine.turn_artifact(told) == {}
    result = engine.handle_with_results(told)
    mutation = mutation_identity("pay", {"id": "state-1"})
    engine.attach_mutation_metadata(told, mutation, METADATA)
    assert engine.mutation_state(told) == {
        "id": result.logical_turn_id,
        "user_id": "dana",
        "delivery": result.delivery,
        "deliveries": [result.delivery],
        "finished": True,
        "mutations": {mutation: {"id": mutation, "tool": "pay", "status": "completed", "metadata": METADATA}},
    }
    bare = {"id": mutation, "tool": "pay", "status": "completed"}
    assert result.turn_artifact == {
        "mutation_ledger": {"version": 1, "logical_turn_id": result.logical_turn_id, "mutations": [bare]}
    }
    # Late metadata shows in the artifact of exactly this turn.
    late = engine.turn_artifact(told)["mutation_ledger"]["mutations"]
    assert late == [bare | {"metadata": METADATA}]
    engine.mutation_state(told)["mutations"].clear()  # type: ignore[index]  # it is not None here
    assert engine.mutation_state(told)["mutations"]  # type: ignore[index]


@pytest.mark.proves("C-92")
def test_a_run_without_a_mutation_has_no_ledger(engine: Engine) -> None:
    told = message("reads", ("look", {}), delivery_id="msg-1")
    result = engine.handle_with_results(told)
    assert (result.status, result.logical_turn_id, result.turn_artifact) == ("completed", None, {})
    assert (engine.mutation_state(told), engine.sessions.mutation_outcomes("reads")) == (None, [])


@pytest.mark.proves("C-60")
def test_a_redelivery_is_refused_with_its_record(host: Hosting, engine: Engine) -> None:
    for number, field in enumerate(("delivery_id", "message_id")):
        calls = ("pay", {"id": f"again-{number}"})
        first = engine.handle_with_results(message("again", calls, **{field: f"msg-{number}"}))
        adapter = Listening()
        second = engine.handle_with_results(message("again", calls, **{field: f"msg-{number}"}), adapter)
        assert second.run_id != first.run_id
        assert second.logical_turn_id == first.logical_turn_id
        assert (second.status, second.calls[0]["refusal"]["code"]) == ("completed", "mutation_completed")
        assert adapter.outcomes == []
        assert host.effects().count(f"again-{number}") == 1
    with pytest.raises(Refused) as caught:
        engine.handle_with_results(message("again", ("pay", {"id": "other"}), delivery_id="msg-0"))
    assert (caught.value.code, caught.value.extra["delivery_id"]) == ("delivery_mismatch", "msg-0")


@pytest.mark.proves("C-61")
def test_identical_live_requests_without_an_id_are_one_and_a_short_wait_says_so(host: Hosting, engine: Engine) -> None:
    calls = ("pay_slowly", {"id": "joined", "after": 1.0})
    owner = message("joined", calls)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(engine.handle_with_results, owner)
        wait_until(lambda: "joined" in host.effects(), 10, "the call to begin")
        attacher = message("joined", calls)
        short = engine.handle_with_results(attacher, wait_seconds=0.05)
        assert (short.status, short.still_running, short.run_status) == ("still_running", True, "running")
        # The live run's delivery is what the attacher reads the ledger by, and hands in again.
        assert attacher.delivery_id == owner.delivery_id == short.delivery_id
        later = engine.handle_with_results(attacher)
        assert first.result().run_id == short.run_id == later.run_id
    assert host.effects().count("joined") == 1
    assert engine.handle_with_results(message("joined", calls)).run_id != short.run_id


@pytest.mark.proves("C-61")
def test_an_explicit_id_tells_simultaneous_same_requests_apart(host: Hosting, engine: Engine) -> None:
    calls = ("pay_slowly", {"id": "apart", "after": 0.3})
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(engine.handle_with_results, message("apart", calls, delivery_id=d)) for d in ("a", "b")]
        assert len({one.result().run_id for one in both}) == 2
    assert host.effects().count("apart") == 2


@pytest.mark.proves("C-63")
def test_a_turn_is_continued_under_a_new_delivery(host: Hosting, engine: Engine) -> None:
    first = engine.handle_with_results(message("goes-on", ("pay", {"id": "goes-on-1"})))
    assert first.logical_turn_id is not None
    following = message("goes-on", ("pay", {"id": "goes-on-1"}), ("pay", {"id": "goes-on-2"}))
    engine.resume_logical_turn(following, first.logical_turn_id)
    second = engine.handle_with_results(following)
    assert second.logical_turn_id == first.logical_turn_id
    assert second.calls[0]["refusal"]["code"] == "mutation_completed"
    ids = [one["id"] for one in second.turn_artifact["mutation_ledger"]["mutations"]]
    assert ids == [mutation_identity("pay", {"id": f"goes-on-{n}"}) for n in (1, 2)]
    state = engine.mutation_state(following)
    assert state is not None
    assert state["deliveries"] == [first.delivery, second.delivery]
    assert host.effects().count("goes-on-1") == 1


@pytest.mark.proves("C-63")
def test_what_cannot_be_continued_is_a_value_error_and_runs_nothing(host: Hosting, engine: Engine) -> None:
    made = engine.handle_with_results(message("mine", ("pay", {"id": "mine-1"}))).logical_turn_id
    assert made is not None
    others = [
        (IncomingMessage("mine", user="eve"), made),
        (IncomingMessage("mine", user="dana", agent="sre"), made),
        (IncomingMessage("theirs", user="dana"), made),
        (IncomingMessage("mine", user="dana"), made[:-1] + ("0" if made[-1] != "0" else "1")),
        (IncomingMessage("mine", user="dana"), "unknown"),
    ]
    for told, turn in others:
        with pytest.raises(ValueError, match="no such logical turn"):
            engine.resume_logical_turn(told, turn)
        # Never a fresh turn instead, also for a host that sets the id by itself.
        told.calls, told.logical_turn_id = [("pay", {"id": "never"})], turn
        with pytest.raises(ContinuationUnavailable) as caught:
            engine.handle(told)
        assert caught.value.code == "logical_turn_unavailable"
    with pytest.raises(InvalidRequest):
        engine.resume_logical_turn(IncomingMessage("mine", user="dana"), "x" * 129)
    assert "never" not in host.effects()


@pytest.mark.proves("C-90", "C-91")
def test_an_unknown_outcome_is_reconciled_and_described(engine: Engine) -> None:
    told = message("lost", ("break_off", {"id": "lost-1"}), delivery_id="msg-1")
    engine.handle_with_results(told)
    mutation = mutation_identity("break_off", {"id": "lost-1"})
    record = engine.reconcile_mutation(told, mutation, completed=True)
    assert (record["status"], record["mutation_id"]) == ("completed", mutation)
    assert engine.attach_mutation_metadata(told, mutation, {"title": "T"})["title"] == "T"
    refusals = [
        (told, mutation, {"completed": False}, "not_reconcilable"),
        (told, "0" * 64, {"completed": True}, "not_found"),
        (message("lost", delivery_id="other"), mutation, {"completed": True}, "not_found"),
    ]
    for asked, which, how, code in refusals:
        with pytest.raises(Refused) as caught:
            engine.reconcile_mutation(asked, which, **how)
        assert caught.value.code == code
    for bad in ({"owner": "x"}, {"title": 3}, {"title": "x" * 5000}):
        with pytest.raises(InvalidRequest):
            engine.attach_mutation_metadata(told, mutation, bad)


@pytest.mark.proves("C-91")
def test_not_executed_is_taken_at_once_only_when_the_attempt_reported_its_end(engine: Engine) -> None:
    told = message("undone", ("break_off", {"id": "undone-1"}), delivery_id="msg-1")
    engine.handle_with_results(told)
    mutation = mutation_identity("break_off", {"id": "undone-1"})
    assert engine.reconcile_mutation(told, mutation, completed=False)["status"] == "not_executed"
    state = engine.mutation_state(told)
    assert state is not None
    assert state["mutations"][mutation]["status"] == "approved"


def test_a_handler_s_narration_is_the_answer(engine: Engine) -> None:
    told = IncomingMessage("speaks", user="dana", handler="follow", text="speaks", input=[])
    assert engine.handle(told) == []
    step = {"call": "pay", "arguments": {"id": "speaks-1"}}
    told = IncomingMessage("speaks", user="dana", handler="follow", text="speaks-2", input=[step])
    result = engine.handle_with_results(told)
    assert result.narration[0]["status"] == "completed"
    assert (result.logical_turn_id is not None, len(result.calls)) == (True, 1)
    assert engine.handle(message("speaks", ("look", {}))) is None


@pytest.mark.proves("C-55")
def test_a_run_is_cancelled_by_its_id(engine: Engine) -> None:
    waiting = engine.handle_with_results(message("stops", ("approved_pay", {"id": "stops-1"})), wait_seconds=0)
    assert [engine.cancel_run(waiting.run_id) for _ in range(2)] == ["cancelled", "cancelled"]
    assert [engine.cancel_run(other) for other in ("nonsense", "00" + "0" * 32)] == ["unknown", "unknown"]
    done = engine.handle_with_results(message("stops", ("look", {})))
    assert engine.cancel_run(done.run_id) == "ended"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"calls": []},
        {"calls": [("pay", {"id": "x"})] * 33},
        {"calls": [("not a name", {})]},
        {"calls": [("pay", {"id": float("nan")})]},
        {"calls": [("pay", {"id": "x"})], "handler": "follow"},
        {"calls": [("pay", {"id": "x"})], "text": "hello"},
        {"calls": [("pay", {"id": "x"})], "on_error": "ignore"},
        {"calls": [("pay", {"id": "x"})], "delivery_id": "d" * 129},
        {"calls": [("pay", {"id": "x"})], "user": "a\nb"},
        {"calls": [("pay", {"id": "x"})], "agent": "\ud800"},
        {"handler": "follow", "text": 3},
        {"handler": "follow", "input": {1: "one"}},
        {"handler": "follow", "input": "x" * 2_000_000},
    ],
)
@pytest.mark.proves("C-64")
def test_a_message_of_the_wrong_shape_is_refused(engine: Engine, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        engine.handle(IncomingMessage("wrong", **{"user": "dana", **wrong}))


@pytest.mark.proves("C-64")
def test_unknown_tools_and_handlers_are_refused(engine: Engine) -> None:
    for told, code in (
        (message("wrong", ("nobody_has_it", {})), "unknown_tool"),
        (message("wrong", ("mcp__nobody__x", {})), "unknown_tool"),
        (IncomingMessage("wrong", handler="nobody"), "unknown_handler"),
    ):
        with pytest.raises(Refused) as caught:
            engine.handle(told)
        assert caught.value.code == code


class Failing(Adapter):
    """Breaks in every way."""

    def on_mutation_outcome(self, outcome: dict[str, Any], *, mutation_revision: int) -> None:
        raise SystemExit(3)

    async def on_event(self, event: object) -> None:
        raise ValueError("no")


@pytest.mark.proves("C-25")
def test_an_adapter_s_errors_change_nothing(engine: Engine) -> None:
    result = engine.handle_with_results(message("fails", ("pay", {"id": "fails-1"})), Failing())
    assert (result.status, result.calls[0]["status"]) == ("completed", "completed")


@pytest.mark.proves("C-50")
@pytest.mark.parametrize("whose", ["message", "adapter"])
def test_the_host_s_own_deadline_bounds_the_request(engine: Engine, whose: str) -> None:
    adapter = Listening()
    told = message(f"soon-{whose}", ("approved_pay", {"id": f"soon-{whose}"}))
    deadline = time.monotonic() + 1.0
    if whose == "message":
        told.deadline_monotonic, adapter.deadline_monotonic = deadline, deadline + 100
    else:
        adapter.deadline_monotonic = deadline
    result = engine.handle_with_results(told, adapter)
    assert (result.status, result.calls[0]["status"]) == ("failed", "expired")
    (request,) = adapter.requests
    assert request.deadline_monotonic is not None
    assert deadline - 0.5 < request.deadline_monotonic <= deadline
    assert request.remaining_timeout(60.0) == 0.0
    assert adapter.outcomes == []


def test_it_may_be_awaited_and_called_from_many_threads(engine: Engine, host: Hosting) -> None:
    async def many() -> list[str]:
        told = [message(f"many-{n}", ("pay", {"id": f"many-{n}"})) for n in range(10)]
        return [result.status for result in await asyncio.gather(*map(engine.handle_async, told))]

    assert asyncio.run(many()) == ["completed"] * 10
    with ThreadPoolExecutor(10) as pool:
        told = [message(f"many-{n}", ("pay", {"id": f"many-{n}-t"})) for n in range(10)]
        assert {result.status for result in pool.map(engine.handle_with_results, told)} == {"completed"}
    assert len([one for one in host.effects() if one.startswith("many-")]) == 20


def test_a_closed_engine_starts_again_and_leaves_no_thread(host: Hosting) -> None:
    before = {thread.name for thread in threading.enumerate()}
    made = host.engine()
    assert made.sessions.mutation_outcomes("nothing") == []
    assert "mutation-ledger-engine" in {thread.name for thread in threading.enumerate()}
    made.close()
    made.close()
    wait_until(lambda: {thread.name for thread in threading.enumerate()} <= before | {"mutation-ledger-engine"}, 5, "")
    assert made.sessions.mutation_outcomes("nothing") == []
    made.close()


@pytest.mark.proves("C-05")
def test_what_is_declared_is_protected_everywhere_at_once(host: Hosting, engine: Engine) -> None:
    """`case_look` is no mutation until a host says so: then for front doors and workers that started before."""
    api: Api = host.stack.add_front_door()
    calls: list[tuple[str, dict[str, Any]]] = [("case_look", {"n": 1})]
    assert api.trigger("declared", "d1", calls, wait=10).body["calls"][0]["protected"] is False
    other = host.engine()
    other.register_mutation_tools({"case_look"})
    reply = api.trigger("declared", "d2", calls, wait=10).body
    assert reply["calls"][0]["protected"] is True
    assert reply["calls"][0]["outcome"]["status"] == "completed"
    # A handler's call is resolved by the worker.
    step = {"call": "case_look", "arguments": {"n": 2}}
    told = IncomingMessage("declared", user="dana", handler="follow", text="declared", input=[step])
    assert engine.handle(told)[0]["recorded"] == "completed"
    assert engine.handle_with_results(message("declared", ("case_look", {"n": 3}))).calls[0]["protected"] is True
    with pytest.raises(InvalidRequest):
        other.register_mutation_tools({"not a name"})


def test_the_package_names_what_hosts_need() -> None:
    from ledger import engine as module

    for name in ("Adapter", "ApprovedMutationBudget", "Engine", "HumanRequest", "IncomingMessage", "TurnResult"):
        assert getattr(ledger, name) is getattr(module, name)
    assert ledger.mutation_identity is mutation_identity
    with pytest.raises(AttributeError):
        _ = ledger.nothing
