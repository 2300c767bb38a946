"""One session with one MCP server, in a task of its own for as long as it lasts.

The SDK's context managers must be left by the task that entered them, so that task opens, serves and closes;
calls come from other tasks and only use the session in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, cast

from mcp import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolRequest,
    CallToolRequestParams,
    CancelledNotification,
    CancelledNotificationParams,
    Implementation,
    RequestParamsMeta,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict, ValidationError

from ledger import __version__
from ledger.errors import ConfigError
from workers.tools.channel import Channel
from workers.tools.dispatch import Dispatch
from workers.tools.handshake import Catalog, ServerUnavailable, list_tools, negotiate
from workers.tools.one_call import CURRENT, OneCallDispatcher

OPEN_SECONDS = 30.0
CLIENT = Implementation(name="mutation-ledger", version=__version__)

OpenChannel = Callable[[], AbstractAsyncContextManager[Channel]]


class _AnyResult(BaseModel):
    """The SDK wants a model; the result itself is judged from `Dispatch.raw`."""

    model_config = ConfigDict(extra="allow")


class Connection:
    """Opened by `start`, usable after `ready`, ended by `close`; never reopened.

    `catalog` holds the input schema of each tool that the server lists now. `in_flight` counts requests that
    may still get a reply. `probed_in_vain`: the server went away over the probe for the newest protocol.
    """

    def __init__(self, open_channel: OpenChannel, *, probe: bool) -> None:
        self._open_channel = open_channel
        self._probe = probe
        self._session: ClientSession | None = None
        self._channel: Channel | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._list_changed = asyncio.Event()
        self.catalog: Catalog = {}
        self.in_flight = 0
        self.retired = False
        self.probed_in_vain = False

    def start(self, ended: Callable[[Connection], object] | None = None) -> None:
        """Begin to open; `ready` tells how it went. `ended` is called when nothing of it is left."""
        self._task = asyncio.create_task(self._run())
        if ended is not None:
            self._task.add_done_callback(lambda _: ended(self))

    async def ready(self) -> None:
        """Wait until calls can be sent. Raises ServerUnavailable."""
        await asyncio.shield(self._ready)

    @property
    def usable(self) -> bool:
        """Whether a new call may be sent here."""
        broken = self._channel is not None and self._channel.health.broken.is_set()
        return self._session is not None and not (broken or self.retired or self._closing.is_set())

    async def exchange(self, tool: str, meta: dict[str, Any], dispatch: Dispatch) -> None:
        """Send the one `tools/call` of `dispatch` and wait for its reply, which is then in `dispatch.raw`.

        Raises what the SDK or the transport raise when there is none; `dispatch` says what was sent by then.
        """
        CURRENT.set(dispatch)
        params = CallToolRequestParams(name=tool, arguments=dispatch.arguments, _meta=cast(RequestParamsMeta, meta))
        self.in_flight += 1
        try:
            await self._usable_session().send_request(CallToolRequest(params=params), _AnyResult)
        except ValidationError:
            if dispatch.raw is None:
                raise
        except MCPError as error:
            self.retired = self.retired or error.code == CONNECTION_CLOSED
            raise
        finally:
            # A transport that works on by itself may still be waiting for its connection.
            dispatch.close()
            self.in_flight -= 1
            self._close_when_idle()

    @property
    def cancel_ends_reply(self) -> bool:
        """Whether `cancel` closes the stream on which the reply would come (HTTP since 2026-07-28)."""
        each = self._channel is not None and self._channel.reply_stream_each
        return each and self._session is not None and self._session.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def cancel(self, dispatch: Dispatch) -> None:
        """Tell the server that nobody wants the result any more; proves nothing."""
        if dispatch.request_id is None or self._session is None:
            return
        params = CancelledNotificationParams(request_id=dispatch.request_id, reason="cancelled")
        await self._session.send_notification(CancelledNotification(params=params))

    async def relist(self) -> None:
        """Ask for the tools again. Raises MCPError or ValidationError; the old catalog stays then."""
        self.catalog = await list_tools(self._usable_session())

    def retire(self) -> None:
        """Take no new calls; close once the last reply in flight is in or given up."""
        self.retired = True
        self._close_when_idle()

    def _close_when_idle(self) -> None:
        if self.retired and self.in_flight == 0:
            self._closing.set()

    async def close(self) -> None:
        """End the session now, also for calls in flight; returns when its process or connections are gone."""
        self._closing.set()
        if self._task is not None:
            if not self._ready.done():
                self._task.cancel()
            await asyncio.wait([self._task])

    def _usable_session(self) -> ClientSession:
        if self._session is None:
            raise MCPError(code=CONNECTION_CLOSED, message="Connection closed")
        return self._session

    async def _run(self) -> None:
        failure = "the server closed the connection"
        try:
            async with self._open_channel() as channel:
                self._channel = channel
                await self._converse(channel)
        except Exception as error:
            failure = describe(error)
        finally:
            self._closing.set()
            self._session = None
            if not self._ready.done():
                problem = self._channel.health.problem if self._channel is not None else None
                self._ready.set_exception(ServerUnavailable(problem or failure))
                # Nobody may be waiting; that is no reason for a warning.
                self._ready.exception()

    async def _converse(self, channel: Channel) -> None:
        dispatcher = OneCallDispatcher(channel.reader, channel.writer)
        async with ClientSession(
            dispatcher=dispatcher, client_info=CLIENT, message_handler=self._on_message
        ) as session:
            try:
                async with asyncio.timeout(OPEN_SECONDS):
                    await negotiate(session, probe=self._probe)
                    self.catalog = await list_tools(session)
            except MCPError as error:
                self.probed_in_vain = self._probe and error.code == CONNECTION_CLOSED
                raise
            self._session = session
            self._ready.set_result(None)
            await self._serve(channel)

    async def _serve(self, channel: Channel) -> None:
        """Until the end; a broken channel may still bring the replies of other calls."""
        following = asyncio.create_task(self._follow_list())
        ends = [asyncio.create_task(event.wait()) for event in (self._closing, channel.health.broken)]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            self.retire()
            await self._closing.wait()
        finally:
            for task in (following, *ends):
                task.cancel()

    async def _follow_list(self) -> None:
        while True:
            await self._list_changed.wait()
            self._list_changed.clear()
            with suppress(MCPError, ValidationError, ServerUnavailable):
                await self.relist()

    async def _on_message(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._list_changed.set()


def describe(error: BaseException) -> str:
    """One line for a log: kinds of errors and our own words, never text that came from a server."""
    if isinstance(error, BaseExceptionGroup):
        return ", ".join(sorted({describe(inner) for inner in error.exceptions}))
    if isinstance(error, ServerUnavailable | ConfigError):
        return str(error)
    if isinstance(error, MCPError):
        return "the server closed the connection" if error.code == CONNECTION_CLOSED else f"error {error.code}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
