"""A server that asks its client something while a call runs: it is answered, and the call's verdict stays as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tool_calls import FakeServer, call_context, call_one, routed
from tests.support.wait import wait_until_async
from workers.tools import Verdict


@pytest.fixture(params=["legacy", "modern"])
def fake(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FakeServer]:
    """A running HTTP server of each protocol revision: there our answer is a request of its own."""
    running = FakeServer(tmp_path, revision=request.param)
    running.start_http()
    yield running
    running.stop_http()


@pytest.mark.proves("C-56")
@pytest.mark.parametrize("method", ["ping", "elicitation/create", "roots/list"])
def test_what_the_server_asks_on_a_calls_own_stream_is_answered(fake: FakeServer, method: str) -> None:
    reply = call_one(fake.http(), "sse_asks", method=method)
    assert reply.verdict is Verdict.COMPLETED
    assert len(fake.events("answered")) == fake.effects() == 1


@pytest.mark.proves("C-53", "C-56")
@pytest.mark.parametrize("hang", [False, True])
def test_a_last_check_that_says_no_by_now_does_not_undo_the_dispatch(fake: FakeServer, hang: bool) -> None:
    """The lease may be short by the time at which the server asks; the call is with the server all the same."""
    asked: list[int] = []

    def last_check() -> str | None:
        asked.append(1)
        return None if len(asked) == 1 else "lease"

    context = call_context(1.5 if hang else 10, last_check=last_check)
    reply = call_one(fake.http(), "sse_asks", context, method="ping", hang=hang)
    expected = (Verdict.OUTCOME_UNKNOWN, "execution_timeout") if hang else (Verdict.COMPLETED, None)
    assert (reply.verdict, reply.reason) == expected
    assert len(asked) == 1
    assert len(fake.events("answered")) == fake.effects() == 1


@pytest.mark.proves("C-10", "C-55", "C-56")
@pytest.mark.parametrize("hang", [False, True])
def test_a_cancelled_call_whose_server_asks_in_the_drain_is_not_taken_for_unsent(
    fake: FakeServer, tmp_path: Path, hang: bool
) -> None:
    cancel, ask = asyncio.Event(), tmp_path / "ask"

    async def main() -> Verdict:
        async with routed(fake.http(), cancel_drain_seconds=2) as router:
            context = call_context(cancel=cancel, last_check=lambda: "cancelled" if cancel.is_set() else None)
            arguments = {"method": "ping", "after": str(ask), "hang": hang}
            call = asyncio.create_task(router.call("mcp__fake__sse_asks", arguments, context))
            await wait_until_async(lambda: fake.effects() == 1, 5, "the call to arrive")
            cancel.set()
            ask.touch()
            return (await call).verdict

    assert asyncio.run(main()) is (Verdict.OUTCOME_UNKNOWN if hang else Verdict.COMPLETED)
    assert len(fake.events("answered")) == fake.effects() == 1


@pytest.mark.proves("C-56")
def test_over_stdio_an_answer_to_the_server_is_no_part_of_the_call(tmp_path: Path) -> None:
    fake = FakeServer(tmp_path)
    asked: list[int] = []

    async def main() -> None:
        async with routed(fake.stdio()) as router:
            reply = await router.call("mcp__fake__asks", {}, call_context(last_check=lambda: asked.append(1)))
            assert reply.verdict is Verdict.COMPLETED
            await wait_until_async(lambda: fake.events("received", method=None), 5, "the answer to the server")

    asyncio.run(main())
    assert len(asked) == 1
    assert fake.effects() == 1
