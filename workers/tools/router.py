"""Where a tool's name leads: to an MCP server or to a native handler, under one set of rules."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ledger.config import McpServerConfig
from ledger.tool_names import split_tool
from workers.tools.native import NativeTools
from workers.tools.quiet import keep_content_out_of_logs
from workers.tools.results import UNKNOWN_TOOL, CallContext, ToolReply, not_executed

if TYPE_CHECKING:
    from workers.tools.handshake import Catalog
    from workers.tools.server import McpServer


class ToolRouter:
    """Calls canonical tool names. Everything runs in the loop that calls `start`; connections stay open."""

    def __init__(
        self,
        servers: Mapping[str, McpServerConfig],
        native: NativeTools | None = None,
        *,
        cancel_drain_seconds: float = 5.0,
    ) -> None:
        self._configs = dict(servers)
        self._native = native or NativeTools(cancel_drain_seconds=cancel_drain_seconds)
        self._drain_seconds = cancel_drain_seconds
        self._servers: dict[str, McpServer] = {}

    async def start(self, *, wait_seconds: float = 0.0) -> None:
        """Begin to connect to every server, and wait up to `wait_seconds` for that.

        A server that cannot be reached is no error here: its calls will try again.
        """
        if not self._configs:
            return
        # The MCP SDK is half of what a worker loads at its start; one without servers does without it.
        from workers.tools.server import McpServer  # noqa: PLC0415

        keep_content_out_of_logs()
        self._servers = {
            name: McpServer(name, config, cancel_drain_seconds=self._drain_seconds)
            for name, config in self._configs.items()
        }
        opening = [server.begin_open() for server in self._servers.values()]
        if opening and wait_seconds > 0:
            await asyncio.wait(opening, timeout=wait_seconds)

    async def call(self, tool: str, arguments: dict[str, Any], context: CallContext) -> ToolReply:
        """Run one tool, at most once (C-51..C-56). The reply says what is proved; failures never raise."""
        route = split_tool(tool, self._servers)
        if route is not None:
            server, name = route
            return await self._servers[server].call(name, arguments, context)
        if tool in self._native:
            return await self._native.call(tool, arguments, context)
        return not_executed(UNKNOWN_TOOL)

    def listed(self) -> dict[str, Catalog]:
        """Input schemas by tool name, of each server that is connected now and lists anything."""
        found = {name: server.listed for name, server in self._servers.items()}
        return {name: catalog for name, catalog in found.items() if catalog}

    async def relist(self) -> None:
        """Asks every connected server for its tools again: not all of them say when those change."""
        await asyncio.gather(*(server.relist() for server in self._servers.values()))

    async def close(self) -> None:
        """End all connections and server processes. Calls in flight end as unknown."""
        await asyncio.gather(*(server.close() for server in self._servers.values()))
        self._native.close()
