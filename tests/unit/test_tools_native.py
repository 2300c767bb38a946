"""Native handlers: what their end proves, when they are not entered, and that none holds up the loop."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.tool_calls import call_context
from tests.support.wait import wait_until, wait_until_async
from workers.tools import (
    CallContext,
    MCPExecutionTimeout,
    NativeTools,
    ToolContext,
    ToolExecutionResult,
    ToolReply,
    ToolRouter,
    Verdict,
    get_tool_route_context,
)

Handler = Callable[[dict[str, Any], ToolContext], Any]
COMPLETED, FAILED, UNKNOWN = Verdict.COMPLETED, Verdict.FAILED, Verdict.OUTCOME_UNKNOWN


def run(handler: Handler, context: CallContext | None = None, *, drain: float = 0.2) -> ToolReply:
    """One call of `handler` through the router."""

    async def main() -> ToolReply:
        tools = NativeTools(cancel_drain_seconds=drain)
        tools.register("tool", handler)
        router = ToolRouter({}, tools)
        await router.start()
        try:
            return await router.call("tool", {"a": 1}, context or call_context())
        finally:
            await router.close()

    return asyncio.run(main())


def both(result: Callable[[], Any]) -> list[Handler]:
    """A sync and an async handler with this result."""

    def sync(arguments: dict[str, Any], ctx: ToolContext) -> Any:
        return result()

    async def asynchronous(arguments: dict[str, Any], ctx: ToolContext) -> Any:
        await asyncio.sleep(0)
        return result()

    return [sync, asynchronous]


def raising(error: BaseException) -> Callable[[], Any]:
    def result() -> Any:
        raise error

    return result


@pytest.mark.parametrize(
    ("result", "verdict", "content"),
    [
        (lambda: None, COMPLETED, None),
        (lambda: {"id": 1}, COMPLETED, {"id": 1}),
        (lambda: ToolExecutionResult(True, content=[1]), COMPLETED, [1]),
        (lambda: ToolExecutionResult(False, failure_confirmed=True, content="no"), FAILED, "no"),
        (lambda: ToolExecutionResult(False), UNKNOWN, None),
        (lambda: ToolExecutionResult("no"), UNKNOWN, None),  # type: ignore[arg-type]  # plugins are not checked
        (lambda: ToolExecutionResult(False, failure_confirmed="no"), UNKNOWN, None),  # type: ignore[arg-type]  # as above
        (raising(ValueError("secret")), UNKNOWN, None),
        (raising(StopIteration()), UNKNOWN, None),
        (raising(SystemExit(1)), UNKNOWN, None),
        (raising(asyncio.CancelledError()), UNKNOWN, None),
        (raising(TimeoutError()), UNKNOWN, None),
        (raising(MCPExecutionTimeout(dispatched=False)), UNKNOWN, None),
    ],
)
def test_what_the_end_of_a_handler_proves(result: Callable[[], Any], verdict: Verdict, content: object) -> None:
    for handler in both(result):
        reply = run(handler)
        assert (reply.verdict, reply.content, reply.reason) == (verdict, content, None)
        assert "secret" not in reply.detail


@pytest.mark.proves("C-54")
def test_a_transport_timeout_inside_a_handler_keeps_its_reason() -> None:
    for handler in both(raising(MCPExecutionTimeout(dispatched=True))):
        reply = run(handler)
        assert (reply.verdict, reply.reason) == (UNKNOWN, "execution_timeout")


@pytest.mark.proves("C-54")
def test_the_timeout_error_says_what_was_dispatched() -> None:
    assert isinstance(MCPExecutionTimeout(dispatched=True), TimeoutError)
    assert MCPExecutionTimeout(dispatched=True).reason == "execution_timeout"
    assert MCPExecutionTimeout(dispatched=False).reason == "pre_dispatch_deadline"


def test_content_a_journal_cannot_hold_is_withheld() -> None:
    for handler in both(lambda: {"n": float("nan")}):
        reply = run(handler)
        assert (reply.verdict, reply.content, reply.content_withheld) == (COMPLETED, None, True)


@pytest.mark.proves("C-53")
@pytest.mark.parametrize("reason", ["pre_dispatch_deadline", "cancelled", "lease"])
def test_the_last_check_keeps_a_handler_from_being_entered(reason: str) -> None:
    entered: list[int] = []
    for handler in both(lambda: entered.append(1)):
        reply = run(handler, call_context(last_check=lambda: reason))
        assert (reply.verdict, reply.reason) == (Verdict.NOT_EXECUTED, reason)
    assert entered == []


@pytest.mark.proves("C-53", "C-55")
def test_nothing_is_entered_after_the_deadline_or_a_cancellation() -> None:
    entered: list[int] = []
    cancelled = asyncio.Event()
    cancelled.set()
    for handler in both(lambda: entered.append(1)):
        late = run(handler, call_context(-1))
        stopped = run(handler, call_context(cancel=cancelled))
        assert (late.verdict, late.reason) == (Verdict.NOT_EXECUTED, "pre_dispatch_deadline")
        assert (stopped.verdict, stopped.reason) == (Verdict.NOT_EXECUTED, "cancelled")
    assert entered == []


def blocking(release: threading.Event) -> list[Handler]:
    def sync(arguments: dict[str, Any], ctx: ToolContext) -> None:
        release.wait(10)

    async def stubborn(arguments: dict[str, Any], ctx: ToolContext) -> None:
        while not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    return [sync, stubborn]


@pytest.mark.proves("C-54")
@pytest.mark.parametrize("kind", [0, 1], ids=["sync", "async that swallows cancellation"])
def test_a_handler_past_its_deadline_is_not_waited_for(kind: int) -> None:
    release = threading.Event()

    async def main() -> None:
        tools = NativeTools()
        tools.register("tool", blocking(release)[kind])
        started = time.monotonic()
        reply = await tools.call("tool", {}, call_context(0.2))
        assert (reply.verdict, reply.reason) == (UNKNOWN, "execution_timeout")
        assert time.monotonic() - started < 2
        release.set()
        tools.close()

    asyncio.run(main())


def test_an_async_handler_past_its_deadline_is_stopped() -> None:
    stopped: list[str] = []

    async def handler(arguments: dict[str, Any], ctx: ToolContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("stopped")

    async def main() -> None:
        tools = NativeTools()
        tools.register("tool", handler)
        assert (await tools.call("tool", {}, call_context(0.1))).verdict is UNKNOWN
        await wait_until_async(lambda: stopped, 2, "the handler to be stopped")
        tools.close()

    asyncio.run(main())


@pytest.mark.proves("C-55")
@pytest.mark.parametrize("kind", [0, 1], ids=["sync", "async"])
def test_a_cancelled_handler_may_end_in_the_drain(kind: int) -> None:
    def sync(arguments: dict[str, Any], ctx: ToolContext) -> str:
        wait_until(lambda: ctx.cancelled, 5, "the cancellation to show")
        return "ended"

    async def asynchronous(arguments: dict[str, Any], ctx: ToolContext) -> str:
        await wait_until_async(lambda: ctx.cancelled, 5, "the cancellation to show")
        return "ended"

    async def main() -> None:
        tools = NativeTools(cancel_drain_seconds=1)
        handlers: list[Handler] = [sync, asynchronous]
        tools.register("tool", handlers[kind])
        cancel = asyncio.Event()
        asyncio.get_running_loop().call_later(0.1, cancel.set)
        reply = await tools.call("tool", {}, call_context(cancel=cancel))
        assert (reply.verdict, reply.content) == (COMPLETED, "ended")
        tools.close()

    asyncio.run(main())


@pytest.mark.proves("C-55")
@pytest.mark.parametrize("kind", [0, 1], ids=["sync", "async"])
def test_a_handler_that_does_not_end_in_the_drain_is_unknown(kind: int) -> None:
    release = threading.Event()

    async def main() -> None:
        tools = NativeTools(cancel_drain_seconds=0.2)
        tools.register("tool", blocking(release)[kind])
        cancel = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, cancel.set)
        started = time.monotonic()
        reply = await tools.call("tool", {}, call_context(cancel=cancel))
        assert (reply.verdict, reply.reason) == (UNKNOWN, None)
        assert 0.2 < time.monotonic() - started < 2
        release.set()
        tools.close()

    asyncio.run(main())


def test_sync_handlers_run_in_their_own_threads_and_wait_for_a_free_one() -> None:
    release = threading.Event()
    entered: list[str] = []

    def handler(arguments: dict[str, Any], ctx: ToolContext) -> None:
        entered.append(threading.current_thread().name)
        release.wait(10)

    async def main() -> None:
        tools = NativeTools(max_threads=2)
        tools.register("tool", handler)
        calls = [asyncio.create_task(tools.call("tool", {}, call_context())) for _ in range(2)]
        await wait_until_async(lambda: len(entered) == 2, 5, "both threads to be busy")
        third = await tools.call("tool", {}, call_context(0.2))
        assert (third.verdict, third.reason) == (Verdict.NOT_EXECUTED, "pre_dispatch_deadline")
        release.set()
        assert {reply.verdict for reply in await asyncio.gather(*calls)} == {COMPLETED}
        assert (await tools.call("tool", {}, call_context())).verdict is COMPLETED
        tools.close()

    asyncio.run(main())
    assert set(entered) == {"native-tool-1", "native-tool-2"}
    assert len(entered) == 3


def test_a_handler_that_never_ends_does_not_keep_the_process() -> None:
    release = threading.Event()

    async def main() -> None:
        tools = NativeTools()
        tools.register("tool", blocking(release)[0])
        await tools.call("tool", {}, call_context(0.1))
        (thread,) = (thread for thread in threading.enumerate() if thread.name.startswith("native-tool"))
        assert thread.daemon
        tools.close()

    asyncio.run(main())
    release.set()


def test_a_handler_sees_its_arguments_its_deadline_and_its_delivery() -> None:
    request_id = contextvars.ContextVar[str]("request_id", default="")
    seen: list[Any] = []

    def handler(arguments: dict[str, Any], ctx: ToolContext) -> None:
        message = get_tool_route_context(ctx).incoming_message
        seen.append((arguments, ctx.tool, ctx.deadline_monotonic, message.delivery_id, request_id.get()))

    context = call_context()
    request_id.set("r-1")
    run(handler, context)
    assert seen == [({"a": 1}, "tool", context.deadline_monotonic, "delivery-1", "r-1")]


def test_a_call_without_a_delivery_has_no_route_context() -> None:
    def handler(arguments: dict[str, Any], ctx: ToolContext) -> str:
        with pytest.raises(LookupError):
            get_tool_route_context(ctx)
        return "asked"

    context = call_context()
    bare = CallContext(
        *(context.mutation_id, None, context.attempt, context.run_id, context.session_id),
        *(context.deadline_monotonic, context.cancel, None, context.last_check),
    )
    assert run(handler, bare).content == "asked"


def test_names_are_taken_once_and_mcp_names_never() -> None:
    tools = NativeTools()
    first, second = both(lambda: None)
    tools.register("tool", first)
    tools.register("tool", first)
    with pytest.raises(ValueError, match="another handler"):
        tools.register("tool", second)
    with pytest.raises(ValueError, match="MCP"):
        tools.register("mcp__a__b", first)
    tools.unregister("tool")
    assert "tool" not in tools
    tools.register("tool", second)


def test_an_async_no_op_costs_microseconds() -> None:
    async def handler(arguments: dict[str, Any], ctx: ToolContext) -> None:
        return None

    async def main() -> float:
        tools = NativeTools()
        tools.register("tool", handler)
        router = ToolRouter({}, tools)
        context = call_context(60)
        best = float("inf")
        for _ in range(20):
            started = time.perf_counter()
            for _ in range(100):
                await router.call("tool", {}, context)
            best = min(best, (time.perf_counter() - started) / 100)
        return best

    assert asyncio.run(main()) < 100e-6 * (10 if sys.gettrace() else 1)
