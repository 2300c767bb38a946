"""Tools that are Python functions of the host: sync or async, under the same rules as remote ones."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ledger.faultpoints import reach
from workers.tools.content import bounded
from workers.tools.dispatch import Dispatch, NotSent
from workers.tools.pool import DaemonPool
from workers.tools.results import (
    CANCELLED,
    EXECUTION_TIMEOUT,
    CallContext,
    IncomingMessage,
    MCPExecutionTimeout,
    ToolReply,
    Verdict,
    not_executed,
    unknown,
)
from workers.tools.waiting import CallCancelled, acquire, finished

KEEP_BYTES = 1_048_576


@dataclass(frozen=True, slots=True)
class ToolExecutionResult:
    """What a handler may return instead of a plain value.

    Without `failure_confirmed` a failure proves nothing, and the outcome is unknown.
    """

    succeeded: bool
    failure_confirmed: bool = False
    content: Any = None


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a handler gets beside its arguments."""

    tool: str
    call: CallContext

    @property
    def deadline_monotonic(self) -> float:
        """The call's deadline, in seconds of `time.monotonic`."""
        return self.call.deadline_monotonic

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants the result any more. Safe to ask from any thread."""
        return self.call.cancel.is_set()


@dataclass(frozen=True, slots=True)
class ToolRouteContext:
    """The delivery behind a call, for `attach_mutation_metadata` and the like."""

    incoming_message: IncomingMessage


def get_tool_route_context(ctx: ToolContext) -> ToolRouteContext:
    """The live delivery of the call that `ctx` belongs to. Raises LookupError if it has none."""
    if ctx.call.message is None:
        raise LookupError("this call belongs to no delivery")
    return ToolRouteContext(incoming_message=ctx.call.message)


Handler = Callable[[dict[str, Any], ToolContext], Any]


class NativeTools:
    """Handlers by routed name. Sync ones run in threads of their own, async ones in the loop."""

    def __init__(self, *, max_threads: int = 64, cancel_drain_seconds: float = 5.0) -> None:
        self._handlers: dict[str, Handler] = {}
        self._pool = DaemonPool(max_threads, "native-tool")
        self._drain_seconds = cancel_drain_seconds
        self._abandoned: set[asyncio.Future[ToolReply]] = set()

    def register(self, name: str, handler: Handler) -> None:
        """Add `handler(arguments, ctx)` as `name`. Raises ValueError if the name is taken or for MCP."""
        if name.startswith("mcp__"):
            raise ValueError(f"{name!r} is a name of MCP tools")
        if self._handlers.get(name, handler) is not handler:
            raise ValueError(f"another handler is registered as {name!r}")
        self._handlers[name] = handler

    def unregister(self, name: str) -> None:
        """Take a handler back, as when a plugin's `bind` fails."""
        self._handlers.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._handlers

    async def call(self, tool: str, arguments: dict[str, Any], context: CallContext) -> ToolReply:
        """Enter the handler at most once; an exception or unconfirmed failure proves nothing (section 4)."""
        reason = context.stopped()
        if reason is not None:
            return not_executed(reason)
        handler = self._handlers[tool]
        dispatch = Dispatch(arguments, context.last_check)
        ctx = ToolContext(tool, context)
        try:
            work = await self._begin(handler, dispatch, ctx)
        except NotSent:
            return not_executed(dispatch.refusal)
        except MCPExecutionTimeout as timeout:
            return not_executed(timeout.reason)
        except CallCancelled:
            return not_executed(CANCELLED)
        try:
            if not await finished(work, context) and context.cancel.is_set() and dispatch.handed_over:
                wait = min(self._drain_seconds, max(context.remaining(), 0.0))
                await asyncio.wait({work}, timeout=wait)
        finally:
            if not work.done():
                self._abandon(work, dispatch, context)
        return self._conclude(work, dispatch, context)

    async def _begin(self, handler: Handler, dispatch: Dispatch, ctx: ToolContext) -> asyncio.Future[ToolReply]:
        if inspect.iscoroutinefunction(handler):
            return asyncio.create_task(_enter(handler, dispatch, ctx))
        await acquire(self._pool.slots, ctx.call)
        try:
            dispatch.hand_over()
        except BaseException:
            self._pool.slots.release()
            raise
        reach("dispatch.sent")
        return self._pool.submit(lambda: _run(handler, dispatch.arguments, ctx))

    def _abandon(self, work: asyncio.Future[ToolReply], dispatch: Dispatch, context: CallContext) -> None:
        dispatch.abandon(context.stopped() or CANCELLED)
        self._abandoned.add(work)
        work.add_done_callback(self._abandoned.discard)
        # A thread cannot be stopped; its handler sees `ctx.cancelled` and its deadline.
        work.cancel()

    def _conclude(self, work: asyncio.Future[ToolReply], dispatch: Dispatch, context: CallContext) -> ToolReply:
        if work.done() and not work.cancelled():
            return work.result()
        if not dispatch.handed_over:
            return not_executed(dispatch.refusal)
        return unknown("no result", EXECUTION_TIMEOUT if context.remaining() <= 0 else None)

    def close(self) -> None:
        """Begin nothing more; handlers that run are left to their deadlines."""
        self._pool.close()
        for work in self._abandoned:
            work.cancel()


async def _enter(handler: Handler, dispatch: Dispatch, ctx: ToolContext) -> ToolReply:
    """The last check and the handler's first step, in one step of the loop."""
    try:
        dispatch.hand_over()
    except NotSent:
        return not_executed(dispatch.refusal)
    reach("dispatch.sent")
    try:
        return _reply(await handler(dispatch.arguments, ctx))
    except (Exception, asyncio.CancelledError, SystemExit) as error:  # a handler must not end the worker
        return _raised(error)


def _run(handler: Handler, arguments: dict[str, Any], ctx: ToolContext) -> ToolReply:
    try:
        return _reply(handler(arguments, ctx))
    except BaseException as error:  # a handler must not end the worker
        return _raised(error)


def _raised(error: BaseException) -> ToolReply:
    timed_out = isinstance(error, MCPExecutionTimeout) and error.dispatched
    return unknown(f"the handler raised {type(error).__name__}", EXECUTION_TIMEOUT if timed_out else None)


def _reply(value: object) -> ToolReply:
    result = value if isinstance(value, ToolExecutionResult) else ToolExecutionResult(True, content=value)
    content, withheld = bounded(result.content, KEEP_BYTES)
    # Only the very values count: "no" is true in Python.
    if result.succeeded is True:
        verdict, detail = Verdict.COMPLETED, ""
    elif result.failure_confirmed is True:
        verdict, detail = Verdict.FAILED, "the handler confirmed its failure"
    else:
        verdict, detail = Verdict.OUTCOME_UNKNOWN, "the handler failed without confirming it"
    return ToolReply(verdict, content=content, content_withheld=withheld, detail=detail)
