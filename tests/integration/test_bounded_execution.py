"""Bounded execution after approval, with a real worker and a real MCP server, on a store whose clock is moved.

The sample of the source, scaled down: four seconds are left on the session clock, a person is waited for 120 seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ledger.engine import ApprovedMutationBudget, Engine, HumanDecision, HumanRequest, IncomingMessage, TurnResult
from tests.support.clock import MovedClock
from tests.support.fake_section import fake_section
from tests.support.hosting import Hosting, Listening, message
from tests.support.tool_calls import FakeServer
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

LATE, ASKED = "mcp__fake__late", "mcp__fake__late_asked"
# A lease longer than every jump of the clock: nobody loses a session by it.
TIMING = '[policy]\napproval_timeout_seconds = 800\nmutation_tools = ["mcp__fake__late"]\n'
SESSION = {"lease_seconds": 7200.0, "session_seconds": 100.0, "request_ceiling_seconds": 900.0}
BUDGET = ApprovedMutationBudget(frozenset({"ask"}), execution_seconds=30, request_ceiling_seconds=900)


class Scene:
    """A worker on a store with its own clock."""

    def __init__(self, directory: Path) -> None:
        self.clock = MovedClock(directory / "clock")
        self.server = ValkeyProcess(directory / "valkey", env=self.clock.env).start()
        self.fake = FakeServer(directory)
        section = fake_section(self.fake, {"late_asked": "approve"})
        more = f'{section}{TIMING}[mcp.aliases]\nask = "{ASKED}"\n'
        self.host = Hosting(directory / "stack", self.server.url, more, timing=SESSION)
        self.host.stack.add_worker()

    def wait_out(self, engine: Engine, session: str, *, seconds: float) -> TurnResult:
        """The first call uses up all of the session clock but four seconds; then a person takes 120 s to say yes."""

        def decide(request: HumanRequest) -> HumanDecision:
            wait_until(lambda: self._waits(engine, session), 20, "the run to wait for the person")
            self.clock.advance(120, self.server)
            return HumanDecision(True, "bob")

        told = message(session, (LATE, {"seconds": 0.7, "for": session}), (ASKED, {"seconds": seconds, "for": session}))
        adapter = Listening(decide)
        with ThreadPoolExecutor() as pool:
            running = pool.submit(engine.handle_with_results, told, adapter)
            wait_until(lambda: self._effects("late", session), 20, "the first call to be sent")
            self.clock.advance(95, self.server)
            return running.result(60)

    def _effects(self, tool: str, session: str) -> int:
        return len([line for line in self.fake.events("effect", tool=tool) if line["arguments"]["for"] == session])

    def _waits(self, engine: Engine, session: str) -> bool:
        outcomes = engine.sessions.mutation_outcomes(session)
        return [one["status"] for one in outcomes] == ["completed"]

    def sent(self, session: str) -> int:
        """How often the approved call reached the server."""
        return self._effects("late_asked", session)

    def close(self) -> None:
        """Ends everything."""
        self.host.close()
        self.server.stop()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(tmp_path_factory.mktemp("bounded"))
    yield made
    made.close()


@pytest.mark.proves("C-51", "C-54", "C-57")
def test_by_default_what_is_left_is_all_there_is(scene: Scene) -> None:
    """Four seconds are left, the tool takes seven: the timeout is in the ledger, the record and the stream."""
    engine = scene.host.engine()
    result = scene.wait_out(engine, "default", seconds=7.0)
    assert [call["status"] for call in result.calls] == ["completed", "outcome_unknown"]
    assert result.calls[1]["outcome"]["reason"] == "execution_timeout"
    assert engine.sessions.mutation_outcomes("default")[1]["reason"] == "execution_timeout"
    client: Any = scene.server.client(decode_responses=True)
    rows = [row for shard in range(16) for _, row in client.xrange(f"ml:{{{shard:02x}}}:outcomes")]
    mine = [row["record"] for row in rows if row["session_id"] == "default"]
    assert '"reason":"execution_timeout"' in mine[-1]
    # Entering the server proves nothing, and nobody tries again.
    assert scene.sent("default") == 1


@pytest.mark.proves("C-52")
def test_with_a_budget_the_approved_call_gets_its_execution_seconds(scene: Scene) -> None:
    """The same wait and tool; the policy is the host's alone, no worker knows of it."""
    engine = scene.host.engine()
    engine.register_approved_mutation_budget(BUDGET)
    result = scene.wait_out(engine, "granted", seconds=7.0)
    assert [call["status"] for call in result.calls] == ["completed", "completed"]
    assert scene.sent("granted") == 1


@pytest.mark.proves("C-52")
def test_a_waiting_handler_s_deadline_is_extended_by_the_approval(scene: Scene) -> None:
    engine = scene.host.engine()
    engine.register_approved_mutation_budget(BUDGET)

    def decide(_: HumanRequest) -> HumanDecision:
        scene.clock.advance(120, scene.server)
        return HumanDecision(True, "bob")

    steps = [
        {"clocks": True},
        {"call": ASKED, "arguments": {"seconds": 3.0, "for": "handler"}},
        {"clocks": True},
        {"call": LATE, "arguments": {"seconds": 0.2, "for": "handler"}},
        {"clocks": True},
    ]
    told = IncomingMessage("handler", user="dana", handler="follow", text="handler", input=steps)
    before, call, after, following, last = engine.handle(told, Listening(decide))
    assert (call["status"], call["recorded"]) == ("completed", "completed")
    # The session clock stood still while the person was asked, and the snapshot never moves.
    assert after["live"] - after["now"] == pytest.approx(before["live"] - before["now"] - 3.0, abs=1.5)
    # Not only for this worker: the store gives the next call what is left, which the wait alone would have used up.
    assert following["status"] == "completed"
    assert last["live"] - last["now"] == pytest.approx(after["live"] - after["now"] - 0.2, abs=1.5)
    assert before["snapshot"] == after["snapshot"]
    assert before["ceiling"] == pytest.approx(900.0, abs=1.0)


@pytest.mark.proves("C-52")
def test_a_different_second_budget_is_refused(scene: Scene) -> None:
    engine = scene.host.engine()
    for _ in range(2):
        engine.register_approved_mutation_budget(BUDGET)
    other = ApprovedMutationBudget(BUDGET.tools, 31, 900)
    with pytest.raises(ValueError, match="another"):
        engine.register_approved_mutation_budget(other)
    with pytest.raises(ValueError, match="wrap-up"):
        scene.host.engine().register_approved_mutation_budget(ApprovedMutationBudget(BUDGET.tools, 1, 25))
