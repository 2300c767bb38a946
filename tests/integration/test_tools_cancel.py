"""Deadlines and cancellation: what is refused, what is unknown, and how soon (C-53 to C-55, case C32)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.support.tool_calls import FakeServer, alive, call_context, call_one, routed
from tests.support.wait import wait_until_async
from workers.tools import Verdict

DRAIN = 0.3


@pytest.mark.proves("C-53")
@pytest.mark.parametrize("reason", ["pre_dispatch_deadline", "cancelled", "lease"])
def test_the_last_check_refuses_with_the_connection_ready(tmp_path: Path, reason: str) -> None:
    fake = FakeServer(tmp_path)
    seen: list[int] = []

    def last_check() -> str | None:
        seen.append(len(fake.events("received", method="tools/list")))
        return reason

    reply = call_one(fake.stdio(), "ok", call_context(last_check=last_check))
    assert (reply.verdict, reply.reason) == (Verdict.NOT_EXECUTED, reason)
    assert seen == [1], "asked once, after connection and catalog"
    assert fake.effects() == 0


@pytest.mark.proves("C-53")
def test_a_last_check_that_raises_sends_nothing(tmp_path: Path) -> None:
    fake = FakeServer(tmp_path)

    def last_check() -> str | None:
        raise RuntimeError

    reply = call_one(fake.stdio(), "ok", call_context(last_check=last_check))
    assert reply.verdict is Verdict.NOT_EXECUTED
    assert fake.effects() == 0


@pytest.mark.proves("C-53", "C-54")
def test_past_the_deadline_nothing_is_sent(tmp_path: Path) -> None:
    fake = FakeServer(tmp_path)
    reply = call_one(fake.stdio(), "ok", call_context(-1))
    assert (reply.verdict, reply.reason) == (Verdict.NOT_EXECUTED, "pre_dispatch_deadline")
    assert fake.effects() == 0


@pytest.mark.proves("C-55")
def test_cancelled_before_dispatch_is_provably_not_sent(tmp_path: Path) -> None:
    fake = FakeServer(tmp_path)

    async def main() -> None:
        cancel = asyncio.Event()
        cancel.set()
        async with routed(fake.stdio()) as router:
            reply = await router.call("mcp__fake__ok", {}, call_context(cancel=cancel))
            assert (reply.verdict, reply.reason) == (Verdict.NOT_EXECUTED, "cancelled")

    asyncio.run(main())
    assert fake.effects() == 0


@pytest.mark.proves("C-53")
def test_a_full_pipe_is_waited_for_and_the_last_check_asked_again(tmp_path: Path) -> None:
    """A server that stops reading must not find a stale request in its pipe later."""
    fake = FakeServer(tmp_path)
    asked: list[float] = []

    def last_check() -> str | None:
        asked.append(time.monotonic())
        return None

    async def main() -> None:
        async with routed(fake.stdio()) as router:
            stuck = asyncio.create_task(router.call("mcp__fake__stops_reading", {}, call_context(2)))
            await wait_until_async(lambda: fake.effects() == 1, 5, "the server to stop reading")
            full = {"text": "x" * 200_000}
            half = asyncio.create_task(router.call("mcp__fake__ok", full, call_context(1.0)))
            late = asyncio.create_task(router.call("mcp__fake__ok", {}, call_context(0.5, last_check=last_check)))
            refused = await late
            assert (refused.verdict, refused.reason) == (Verdict.NOT_EXECUTED, "pre_dispatch_deadline")
            # Its first bytes are in the pipe; nobody can prove what the server makes of them.
            assert (await half).verdict is Verdict.OUTCOME_UNKNOWN
            assert (await stuck).verdict is Verdict.OUTCOME_UNKNOWN

    asyncio.run(main())
    assert asked == []
    assert fake.effects() == 1


@pytest.mark.proves("C-54")
@pytest.mark.parametrize("tool", ["hang", "late"])
def test_a_timeout_after_dispatch_is_unknown_at_the_deadline(tmp_path: Path, tool: str) -> None:
    fake = FakeServer(tmp_path)

    async def main() -> None:
        async with routed(fake.stdio()) as router:
            assert (await router.call("mcp__fake__ok", {}, call_context())).verdict is Verdict.COMPLETED
            started = time.monotonic()
            reply = await router.call(f"mcp__fake__{tool}", {"seconds": 0.5}, call_context(0.3))
            assert (reply.verdict, reply.reason) == (Verdict.OUTCOME_UNKNOWN, "execution_timeout")
            assert time.monotonic() - started < 2
            await wait_until_async(lambda: fake.events("cancelled", known=True), 5, "the cancellation")

    asyncio.run(main())
    assert fake.effects() == 2


@pytest.mark.proves("C-55")
def test_a_result_in_the_drain_counts_and_keeps_the_connection(tmp_path: Path) -> None:
    fake = FakeServer(tmp_path)

    async def main() -> None:
        async with routed(fake.stdio()) as router:
            cancel = asyncio.Event()
            call = asyncio.create_task(router.call("mcp__fake__answers_cancel", {}, call_context(cancel=cancel)))
            await wait_until_async(lambda: fake.effects() == 1, 5, "the call to arrive")
            cancel.set()
            assert (await call).verdict is Verdict.COMPLETED
            await router.call("mcp__fake__ok", {}, call_context())

    asyncio.run(main())
    assert len(fake.events("start")) == 1
    assert fake.effects() == 2


@pytest.mark.proves("C-55")
def test_a_transport_that_does_not_drain_is_replaced_without_waiting_for_it(tmp_path: Path) -> None:
    """The server ignores the cancellation, the end of its input and SIGTERM."""
    fake = FakeServer(tmp_path, ignore_eof=True, ignore_term=True)

    async def main() -> None:
        async with routed(fake.stdio(), cancel_drain_seconds=DRAIN) as router:
            cancel = asyncio.Event()
            call = asyncio.create_task(router.call("mcp__fake__hang", {}, call_context(cancel=cancel)))
            await wait_until_async(lambda: fake.effects() == 1, 5, "the call to arrive")
            cancel.set()
            cancelled = time.monotonic()
            reply = await call
            waited = time.monotonic() - cancelled
            assert (reply.verdict, reply.reason) == (Verdict.OUTCOME_UNKNOWN, None)
            assert DRAIN <= waited < 2, "the clean-up takes four seconds"
            assert (await router.call("mcp__fake__ok", {}, call_context())).verdict is Verdict.COMPLETED
            first, second = (line["pid"] for line in fake.events("start"))
            await wait_until_async(lambda: not alive({first}), 8, "the quarantined server to be gone")
            assert alive({second})

    asyncio.run(main())
    assert fake.effects() == 2
    assert not alive(fake.pids())


@pytest.mark.proves("C-55")
def test_quarantine_lets_other_calls_on_the_connection_end(tmp_path: Path) -> None:
    fake = FakeServer(tmp_path)

    async def main() -> None:
        async with routed(fake.stdio()) as router:
            cancel = asyncio.Event()
            hang = asyncio.create_task(router.call("mcp__fake__hang", {}, call_context(cancel=cancel)))
            late = asyncio.create_task(router.call("mcp__fake__late", {"seconds": 1.0}, call_context()))
            await wait_until_async(lambda: fake.effects() == 2, 5, "both calls to arrive")
            cancel.set()
            assert (await hang).verdict is Verdict.OUTCOME_UNKNOWN
            assert (await late).verdict is Verdict.COMPLETED

    asyncio.run(main())


@pytest.mark.proves("C-56")
def test_a_cancelled_caller_leaves_nothing_that_could_send_later(tmp_path: Path) -> None:
    fake = FakeServer(tmp_path, no_list=True)

    async def main() -> None:
        async with routed(fake.stdio()) as router:
            call = asyncio.create_task(router.call("mcp__fake__ok", {}, call_context()))
            await wait_until_async(lambda: fake.events("received", method="tools/list"), 5, "the list")
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(main())
    assert fake.effects() == 0
