"""One MCP server as the router sees it: a bounded number of calls at once over one connection kept open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import structlog
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from ledger.config import McpServerConfig
from ledger.strict_json import canonical
from workers.tools.channel import Channel
from workers.tools.connection import Connection, describe
from workers.tools.dispatch import Dispatch
from workers.tools.handshake import Catalog, ServerUnavailable
from workers.tools.http import open_http
from workers.tools.reply import judge
from workers.tools.results import (
    CANCELLED,
    EXECUTION_TIMEOUT,
    UNKNOWN_TOOL,
    CallContext,
    MCPExecutionTimeout,
    ToolReply,
    not_executed,
    unknown,
)
from workers.tools.stdio import open_stdio
from workers.tools.waiting import CallCancelled, acquire, finished, within

# Opening is tried again while it fails fast: a server that restarts must not cost a person a second approval.
RETRY_DELAYS = (0.1, 0.5)
RETRY_WINDOW_SECONDS = 5.0
# A call that was not sent because its connection had just ended may use one more.
CONNECTIONS_PER_CALL = 2
RELIST_SECONDS = 10.0

log = structlog.get_logger(__name__)


class McpServer:
    """Calls to one configured server; `router` owns it. All methods belong to one event loop."""

    def __init__(self, name: str, config: McpServerConfig, *, cancel_drain_seconds: float) -> None:
        self.name = name
        self._config = config
        self._drain_seconds = cancel_drain_seconds
        self._slots = asyncio.Semaphore(config.concurrency)
        self._connection: Connection | None = None
        self._connections: set[Connection] = set()
        self._opening: asyncio.Task[Connection] | None = None
        self._background: set[asyncio.Task[Any]] = set()
        self._probe = True

    @property
    def listed(self) -> Catalog:
        """Input schemas by tool name, as last listed; empty without a usable connection."""
        return self._connection.catalog if self._connection is not None and self._connection.usable else {}

    async def relist(self) -> None:
        """Asks for the tools again; what was listed before stays when there is no answer."""
        if self._connection is not None and self._connection.usable:
            with suppress(MCPError, ValidationError, ServerUnavailable, TimeoutError):
                async with asyncio.timeout(RELIST_SECONDS):
                    await self._connection.relist()

    async def call(self, tool: str, arguments: dict[str, Any], context: CallContext) -> ToolReply:
        """Send at most one `tools/call`, ever (C-56); raises only when the calling task is cancelled."""
        try:
            # Over HTTP the SDK would send null for what JSON does not have (case C11).
            canonical(arguments)
        except (TypeError, ValueError, RecursionError):
            return not_executed(None, "the arguments are not JSON")
        try:
            async with self._slot(context):
                return await self._call(tool, arguments, context)
        except MCPExecutionTimeout as timeout:
            return not_executed(timeout.reason)
        except CallCancelled:
            return not_executed(CANCELLED)
        except ServerUnavailable as error:
            return not_executed(None, f"{self.name}: {error}")

    @asynccontextmanager
    async def _slot(self, context: CallContext) -> AsyncIterator[None]:
        await acquire(self._slots, context)
        try:
            yield
        finally:
            self._slots.release()

    async def _call(self, tool: str, arguments: dict[str, Any], context: CallContext) -> ToolReply:
        for _ in range(CONNECTIONS_PER_CALL):
            connection = await self._connected(context)
            if not await self._lists(connection, tool, context):
                if connection.usable:
                    return not_executed(UNKNOWN_TOOL)
                continue
            dispatch = Dispatch(arguments, context.last_check)
            reply = await self._send(connection, tool, dispatch, context)
            if reply is not None:
                return reply
        raise ServerUnavailable("the connection ended before the call was sent")

    async def _connected(self, context: CallContext) -> Connection:
        connection = self._connection
        if connection is not None and connection.usable:
            return connection
        return await within(self._open_once(), context)

    async def _open_once(self) -> Connection:
        """The next connection; everybody who needs one waits for the same attempt."""
        # It may have been opened since the caller looked; a second one would replace it, and nobody would close it.
        if self._connection is not None and self._connection.usable:
            return self._connection
        return await asyncio.shield(self.begin_open())

    def begin_open(self) -> asyncio.Task[Connection]:
        """Start to open a connection, unless that is under way."""
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open())
            # Nobody may be waiting when it fails.
            self._opening.add_done_callback(_retrieve)
        return self._opening

    async def _open(self) -> Connection:
        give_up = time.monotonic() + RETRY_WINDOW_SECONDS
        delays = iter(RETRY_DELAYS)
        while True:
            connection = Connection(lambda: open_channel(self._config), probe=self._probe)
            self._connections.add(connection)
            connection.start(self._connections.discard)
            try:
                await connection.ready()
            except ServerUnavailable as error:
                # One that went away over the probe may be older, or may just have been killed: both ways are tried.
                self._probe = not connection.probed_in_vain
                delay = next(delays, None)
                if delay is None or time.monotonic() > give_up:
                    log.warning("mcp_server_unavailable", server=self.name, detail=str(error))
                    raise
                await asyncio.sleep(delay)
            else:
                self._connection = connection
                return connection

    async def _lists(self, connection: Connection, tool: str, context: CallContext) -> bool:
        """Whether the server has the tool; asked again once, because lists grow."""
        if tool not in connection.catalog:
            with suppress(MCPError, ValidationError, ServerUnavailable):
                await within(connection.relist(), context)
        return tool in connection.catalog

    async def _send(
        self, connection: Connection, tool: str, dispatch: Dispatch, context: CallContext
    ) -> ToolReply | None:
        """The reply, or None if the connection was gone before a byte was sent."""
        exchange = asyncio.create_task(connection.exchange(tool, _meta(context), dispatch))
        exchange.add_done_callback(_retrieve)
        try:
            done = await finished(exchange, context)
            if not done and context.cancel.is_set() and dispatch.handed_over:
                # Where a cancel closes the reply's stream, it can only come after the drain.
                if not connection.cancel_ends_reply:
                    self._later(connection.cancel(dispatch))
                wait = min(self._drain_seconds, max(context.remaining(), 0.0))
                await asyncio.wait({exchange}, timeout=wait)
        finally:
            if not exchange.done():
                dispatch.abandon(context.stopped() or CANCELLED)
                self._let_go(connection, dispatch, exchange, cancelled=context.cancel.is_set())
        return self._conclude(connection, dispatch, exchange, context)

    def _conclude(
        self, connection: Connection, dispatch: Dispatch, exchange: asyncio.Task[None], context: CallContext
    ) -> ToolReply | None:
        error = exchange.exception() if exchange.done() and not exchange.cancelled() else None
        if dispatch.raw is not None:
            return judge(dispatch.raw, self._config.reply_keep_bytes)
        if not dispatch.handed_over:
            if dispatch.refusal is not None:
                return not_executed(dispatch.refusal)
            return not_executed(None, describe(error) if error else "") if connection.usable else None
        if error is not None:
            return unknown(describe(error))
        return unknown("no reply", EXECUTION_TIMEOUT if context.remaining() <= 0 else None)

    def _let_go(
        self, connection: Connection, dispatch: Dispatch, exchange: asyncio.Task[None], *, cancelled: bool
    ) -> None:
        """Nobody waits for this reply any more; the answer is given without waiting for what follows."""
        if not dispatch.handed_over:
            exchange.cancel()
        elif connection.cancel_ends_reply:
            self._later(self._hang_up(connection, dispatch, exchange))
        elif cancelled:
            self._quarantine(connection, exchange)
        else:
            self._later(self._expire(connection, dispatch, exchange))

    async def _hang_up(self, connection: Connection, dispatch: Dispatch, exchange: asyncio.Task[None]) -> None:
        await connection.cancel(dispatch)
        exchange.cancel()

    async def _expire(self, connection: Connection, dispatch: Dispatch, exchange: asyncio.Task[None]) -> None:
        """After a timeout: cancel towards the server; a transport that does not drain is replaced."""
        self._later(connection.cancel(dispatch))
        await asyncio.wait({exchange}, timeout=self._drain_seconds)
        if not exchange.done():
            self._quarantine(connection, exchange)

    def _quarantine(self, connection: Connection, exchange: asyncio.Task[None]) -> None:
        connection.retired = True
        exchange.cancel()
        connection.retire()
        log.warning("mcp_connection_quarantined", server=self.name)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        task.add_done_callback(_retrieve)

    async def close(self) -> None:
        """End every connection; calls in flight get no reply. Returns when no server process is left."""
        tasks: list[asyncio.Task[Any]] = [*self._background]
        if self._opening is not None:
            tasks.append(self._opening)
        for task in tasks:
            task.cancel()
        await asyncio.gather(
            *tasks, *(connection.close() for connection in set(self._connections)), return_exceptions=True
        )


def open_channel(
    config: McpServerConfig, *, stderr: int = asyncio.subprocess.DEVNULL
) -> AbstractAsyncContextManager[Channel]:
    """The transport that `config` asks for; `stderr` is where a stdio server's goes."""
    return open_stdio(config, stderr=stderr) if config.command is not None else open_http(config)


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Take note of an exception that may have lost its reader."""
    if not task.cancelled():
        task.exception()


def _meta(context: CallContext) -> dict[str, Any]:
    """What a tool may use to recognise a repeat or to join a trace (C-53)."""
    meta = {
        "mutation-ledger/mutation_id": context.mutation_id,
        "mutation-ledger/attempt": context.attempt,
    }
    if context.logical_turn_id is not None:
        meta["mutation-ledger/logical_turn_id"] = context.logical_turn_id
    if context.traceparent is not None:
        meta["traceparent"] = context.traceparent
    return meta
