"""Approvals through a host's own adapter: a named principal, the store's clock, the same rules as every channel."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ledger.engine import Adapter, Engine, HumanDecision, HumanRequest, TurnResult
from tests.support.hosting import Hosting, Listening, hosting, message
from tests.support.stack import APPROVER, Api
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

CONFIRMED = "mcp__dashboards__create"
SERVERS = """
[mcp.servers.dashboards]
command = ["false"]
[mcp.servers.dashboards.tools.create]
human = "confirm"
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosting]:
    """One stack for this module; each test names a session of its own."""
    server = ValkeyProcess(tmp_path_factory.mktemp("valkey")).start()
    with hosting(tmp_path_factory.mktemp("stack"), server.url, SERVERS) as made:
        yield made
    server.stop()


@pytest.fixture(scope="module")
def engine(host: Hosting) -> Engine:
    return host.engine(approvers=["carol"])


@pytest.fixture(scope="module")
def api(host: Hosting) -> Api:
    return host.stack.add_front_door()


def yes(by: str, **more: Any) -> Callable[[HumanRequest], HumanDecision]:
    return lambda _: HumanDecision(True, by, **more)


def ask(engine: Engine, session: str, adapter: Adapter, **more: Any) -> TurnResult:
    return engine.handle_with_results(message(session, ("approved_pay", {"id": session})), adapter, **more)


@pytest.mark.proves("C-40", "C-42")
@pytest.mark.parametrize("by", ["carol", "bob"])
def test_a_named_approver_decides_the_exact_call(engine: Engine, host: Hosting, by: str) -> None:
    """`carol` is the engine's own, `bob` has a token with the role."""
    adapter = Listening(yes(by))
    result = ask(engine, f"yes-{by}", adapter)
    assert (result.status, adapter.decisions) == ("completed", ["approved"])
    (request,) = adapter.requests
    assert (request.tool, request.arguments, request.level) == ("approved_pay", {"id": f"yes-{by}"}, "approve")
    assert (request.session_id, request.user, request.requested_by) == (f"yes-{by}", "dana", "host")
    assert request.mutation_id == result.calls[0]["mutation_id"]
    assert 0 < request.remaining_timeout(1000.0) <= 300
    assert request.remaining_timeout(7.0) == 7.0
    assert host.effects().count(f"yes-{by}") == 1


@pytest.mark.proves("C-42")
@pytest.mark.parametrize(
    ("by", "code"), [("mallory", "not_an_approver"), ("reader", "not_an_approver"), ("stranger", "not_an_approver")]
)
def test_nobody_else_decides(engine: Engine, host: Hosting, by: str, code: str) -> None:
    adapter = Listening(yes(by))
    result = ask(engine, f"no-{by}", adapter, wait_seconds=1.0)
    wait_until(lambda: adapter.decisions == [code], 5, "the refusal")
    assert (result.status, result.run_status) == ("still_running", "waiting_for_approval")
    assert f"no-{by}" not in host.effects()


@pytest.mark.proves("C-42")
def test_the_requester_does_not_decide(host: Hosting) -> None:
    own = host.engine(principal="bob")
    adapter = Listening(yes("bob"))
    ask(own, "own", adapter, wait_seconds=1.0)
    wait_until(lambda: adapter.decisions == ["requester_may_not_approve"], 5, "the refusal")
    assert "own" not in host.effects()


@pytest.mark.proves("C-41")
def test_a_denial_runs_nothing_and_is_no_outcome(engine: Engine, host: Hosting) -> None:
    adapter = Listening(lambda _: HumanDecision(False, "carol", comment="not today"))
    result = ask(engine, "denied", adapter)
    assert (result.status, result.calls[0]["status"], adapter.decisions) == ("failed", "denied", ["denied"])
    assert (adapter.outcomes, result.logical_turn_id) == ([], None)
    assert "denied" not in host.effects()


@pytest.mark.proves("C-42")
def test_only_true_means_yes(engine: Engine) -> None:
    adapter = Listening(lambda _: HumanDecision("no", "carol"))  # type: ignore[arg-type]  # a careless adapter
    assert ask(engine, "careless", adapter).calls[0]["status"] == "denied"


@pytest.mark.proves("C-07")
def test_confirm_wants_the_tool_s_name_typed(engine: Engine) -> None:
    adapter = Listening(lambda request: HumanDecision(True, "carol", confirm=request.tool[:-1]))
    told = message("typed", (CONFIRMED, {"title": "T"}))
    engine.handle_with_results(told, adapter, wait_seconds=1.0)
    wait_until(lambda: adapter.decisions == ["confirmation_mismatch"], 5, "the refusal")
    assert adapter.requests[0].level == "confirm"
    again = Listening(lambda request: HumanDecision(True, "carol", confirm=request.tool))
    engine.handle_with_results(told, again, wait_seconds=1.0)
    wait_until(lambda: again.decisions == ["approved"], 5, "the approval")


@pytest.mark.proves("C-41", "C-50")
def test_an_adapter_that_ignores_the_deadline_is_too_late_by_the_store_s_clock(engine: Engine, host: Hosting) -> None:
    class Dreaming(Listening):
        def request_human(self, request: HumanRequest) -> HumanDecision | None:
            self.requests.append(request)
            # As if nobody had ever heard of `remaining_timeout`: until the run itself is over.
            assert request.wait_closed(10)
            return HumanDecision(True, "carol")

    adapter = Dreaming()
    adapter.deadline_monotonic = time.monotonic() + 0.7
    result = ask(engine, "dreaming", adapter)
    assert (result.status, result.calls[0]["status"]) == ("failed", "expired")
    assert adapter.requests[0].closed
    assert "dreaming" not in host.effects()


@pytest.mark.proves("C-41")
def test_another_channel_may_be_first(engine: Engine, api: Api, host: Hosting) -> None:
    closed: list[bool] = []

    class Slow(Listening):
        def request_human(self, request: HumanRequest) -> HumanDecision | None:
            self.requests.append(request)
            closed.append(request.wait_closed(15))
            return HumanDecision(False, "carol")

    adapter = Slow()
    with ThreadPoolExecutor() as pool:
        running = pool.submit(ask, engine, "first", adapter)
        wait_until(lambda: adapter.requests, 10, "the request")
        assert (
            api.as_(APPROVER).post(f"/api/approvals/{adapter.requests[0].approval_id}", {"decision": "approve"}).status
            == 200
        )
        assert running.result().status == "completed"
    wait_until(lambda: closed == [True], 5, "the adapter to hear of it")
    assert host.effects().count("first") == 1


def test_async_adapters_are_awaited_and_cancelled(engine: Engine, api: Api) -> None:
    cancelled = threading.Event()

    class Async(Listening):
        async def request_human(self, request: HumanRequest) -> HumanDecision | None:  # type: ignore[override]
            self.requests.append(request)
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return None

    adapter = Async()
    with ThreadPoolExecutor() as pool:
        running = pool.submit(ask, engine, "async", adapter)
        wait_until(lambda: adapter.requests, 10, "the request")
        assert api.approve(adapter.requests[0].approval_id).status == 200
        assert running.result().status == "completed"
    assert cancelled.wait(5)


@pytest.mark.proves("C-44")
def test_an_adapter_that_fails_or_leaves_it_to_others_leaves_the_request_pending(engine: Engine, api: Api) -> None:
    def fail(_: HumanRequest) -> HumanDecision | None:
        raise OSError("no terminal")

    for session, decide in (("broken", fail), ("others", lambda _: None)):
        adapter = Listening(decide)
        told = message(session, ("approved_pay", {"id": session}))
        assert engine.handle_with_results(told, adapter, wait_seconds=0.5).run_status == "waiting_for_approval"
        # Asked once, found again by the next one that waits.
        assert len(adapter.requests) == 1
        again = Listening(yes("carol"))
        assert engine.handle_with_results(told, again).status == "completed"
        assert again.requests[0].approval_id == adapter.requests[0].approval_id
