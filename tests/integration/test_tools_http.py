"""The same promises over Streamable HTTP, where proxies and dropped streams come between (case C26)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.fake_answers import HTTP_ANSWERS
from tests.support.tool_calls import FakeServer, call_context, call_one, routed
from tests.support.wait import wait_until_async
from workers.tools import Verdict, http, server

COMPLETED, FAILED, UNKNOWN = Verdict.COMPLETED, Verdict.FAILED, Verdict.OUTCOME_UNKNOWN
REVISIONS = ["legacy", "modern"]


@pytest.fixture(params=REVISIONS)
def fake(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FakeServer]:
    """A running HTTP server of each protocol revision."""
    running = FakeServer(tmp_path, revision=request.param)
    running.start_http()
    yield running
    running.stop_http()


@pytest.fixture(scope="module", params=REVISIONS)
def shared(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[FakeServer]:
    """One server for many tests; its log grows, so they count differences."""
    running = FakeServer(tmp_path_factory.mktemp("fake"), revision=request.param)
    running.start_http()
    yield running
    running.stop_http()


@pytest.mark.proves("C-56")
@pytest.mark.parametrize(("tool", "verdict", "withheld"), HTTP_ANSWERS)
def test_every_answer_means_one_effect_and_one_verdict(
    shared: FakeServer, tool: str, verdict: Verdict, withheld: bool
) -> None:
    received = len(shared.events("received", method="tools/call"))
    effects = shared.effects()
    reply = call_one(shared.http(), tool)
    assert (reply.verdict, reply.content_withheld, reply.reason) == (verdict, withheld, None)
    assert shared.effects() == effects + 1
    assert len(shared.events("received", method="tools/call")) == received + 1


@pytest.mark.proves("C-56")
@pytest.mark.parametrize("tool", ["status_404", "status_502", "status_202", "drop", "sse_drop"])
def test_after_a_broken_answer_the_next_call_gets_a_fresh_session(fake: FakeServer, tool: str) -> None:
    async def main() -> None:
        async with routed(fake.http()) as router:
            assert (await router.call(f"mcp__fake__{tool}", {}, call_context())).verdict is UNKNOWN
            assert (await router.call("mcp__fake__ok", {}, call_context())).verdict is COMPLETED

    asyncio.run(main())
    assert fake.effects() == 2
    assert len(fake.events("received", method="tools/list")) == 2


@pytest.mark.proves("C-54", "C-56")
def test_a_stream_whose_resumption_stays_empty_is_given_up_at_the_deadline(fake: FakeServer) -> None:
    reply = call_one(fake.http(), "sse_drop_id", call_context(1))
    assert (reply.verdict, reply.reason) == (UNKNOWN, "execution_timeout")
    assert fake.events("received", method="GET", last="e1")
    assert fake.effects() == 1


@pytest.mark.proves("C-56")
def test_one_lost_reply_leaves_the_sessions_other_calls_alone(fake: FakeServer) -> None:
    async def main() -> None:
        async with routed(fake.http()) as router:
            late = asyncio.create_task(router.call("mcp__fake__http_late", {"seconds": 1}, call_context()))
            await wait_until_async(lambda: fake.effects() == 1, 5, "the late call to arrive")
            assert (await router.call("mcp__fake__drop", {}, call_context())).verdict is UNKNOWN
            assert (await late).verdict is COMPLETED

    asyncio.run(main())
    assert fake.effects() == 2


@pytest.mark.proves("C-56")
def test_a_refused_connection_is_not_executed(fake: FakeServer) -> None:
    fake.stop_http()
    reply = call_one(fake.http(), "ok")
    assert (reply.verdict, reply.reason) == (Verdict.NOT_EXECUTED, None)


@pytest.mark.proves("C-56")
def test_an_endpoint_that_redirects_is_refused_before_any_call(fake: FakeServer) -> None:
    """The SDK would follow it, and POST each call twice."""
    config = fake.http().model_copy(update={"url": f"http://127.0.0.1:{fake.port}/moved"})
    reply = call_one(config, "ok")
    assert (reply.verdict, reply.detail) == (Verdict.NOT_EXECUTED, "fake: HTTP status 307")
    assert fake.effects() == 0


@pytest.mark.proves("C-56")
def test_a_server_that_restarted_between_calls_is_found_again(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refused POST moved no byte, so the call may go to the next session."""
    monkeypatch.setattr(server, "RETRY_DELAYS", (0.1,) * 40)

    async def main() -> None:
        async with routed(fake.http()) as router:
            assert (await router.call("mcp__fake__ok", {}, call_context())).verdict is COMPLETED
            fake.stop_http()
            call = asyncio.create_task(router.call("mcp__fake__ok", {}, call_context()))
            await asyncio.to_thread(fake.start_http)
            assert (await call).verdict is COMPLETED

    asyncio.run(main())
    assert fake.effects() == 2


def passed(moment: float) -> bool:
    return time.monotonic() > moment


@pytest.mark.proves("C-56")
def test_an_idle_connection_is_left_before_the_server_may_close_it(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that met the close would be lost without an answer."""
    assert http.KEEPALIVE_SECONDS < 5, "what common servers allow"
    monkeypatch.setattr(http, "KEEPALIVE_SECONDS", 0.1)

    async def main() -> None:
        async with routed(fake.http()) as router:
            for _ in range(2):
                await router.call("mcp__fake__ok", {}, call_context())
                over = time.monotonic() + 0.2
                await wait_until_async(partial(passed, over), 1, "the connection to be idle long enough")

    asyncio.run(main())
    first, second = (line["port"] for line in fake.events("received", method="tools/call"))
    assert first != second
    assert not fake.events("received", method="GET"), "no stream is kept open for the server's own requests"


@pytest.mark.proves("C-53")
def test_the_last_check_comes_after_the_connection(fake: FakeServer) -> None:
    asked: list[int] = []

    def last_check() -> str | None:
        asked.append(len(fake.events("received", method="tools/list")))
        return "lease"

    async def main() -> None:
        async with routed(fake.http()) as router:
            reply = await router.call("mcp__fake__ok", {}, call_context(last_check=last_check))
            assert (reply.verdict, reply.reason) == (Verdict.NOT_EXECUTED, "lease")
            assert (await router.call("mcp__fake__ok", {}, call_context())).verdict is COMPLETED

    asyncio.run(main())
    assert asked == [1]
    assert len(fake.events("received", method="tools/list")) == 1, "a refusal costs no session"
    assert fake.effects() == 1


@pytest.mark.proves("C-54")
def test_a_timeout_after_dispatch_is_unknown_at_the_deadline(fake: FakeServer) -> None:
    started = time.monotonic()

    async def main() -> None:
        async with routed(fake.http()) as router:
            await router.call("mcp__fake__ok", {}, call_context())
            nonlocal started
            started = time.monotonic()
            reply = await router.call("mcp__fake__http_late", {"seconds": 3}, call_context(0.3))
            assert (reply.verdict, reply.reason) == (UNKNOWN, "execution_timeout")
            assert time.monotonic() - started < 1.5

    asyncio.run(main())
    assert fake.effects() == 2


@pytest.mark.proves("C-55")
@pytest.mark.parametrize(("seconds", "verdict"), [(0.5, COMPLETED), (3, UNKNOWN)])
def test_a_cancelled_call_is_drained(fake: FakeServer, seconds: float, verdict: Verdict) -> None:
    async def main() -> None:
        async with routed(fake.http(), cancel_drain_seconds=1) as router:
            cancel = asyncio.Event()
            call = asyncio.create_task(
                router.call("mcp__fake__http_late", {"seconds": seconds}, call_context(cancel=cancel))
            )
            await wait_until_async(lambda: fake.effects() == 1, 5, "the call to arrive")
            cancel.set()
            cancelled = time.monotonic()
            reply = await call
            assert (reply.verdict, reply.reason) == (verdict, None)
            assert time.monotonic() - cancelled < 2.5

    asyncio.run(main())
    assert fake.effects() == 1
