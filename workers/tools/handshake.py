"""From an open channel to a usable session: which protocol revision, and which tools there are."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    ListToolsResult,
    PaginatedRequestParams,
)
from pydantic import ValidationError

# A server of an older revision may leave an unknown request unanswered.
PROBE_SECONDS = 4.0
MAX_PAGES = 100

Catalog = dict[str, dict[str, Any]]


class ServerUnavailable(Exception):
    """There is no usable session, and no call was sent. The message is one line, without content."""


async def negotiate(session: ClientSession, *, probe: bool) -> None:
    """Agree on a revision: the newest by `server/discover`, unless `probe` is off, else by `initialize`.

    Raises MCPError, ValidationError or RuntimeError as the SDK does when the server speaks neither.
    """
    if probe and await _discovered(session):
        return
    try:
        await session.initialize()
    except MCPError as error:
        # A slow server may have taken the probe as its choice after we stopped waiting for the answer.
        if error.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()


async def _discovered(session: ClientSession) -> bool:
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await session.discover()
    except (MCPError, ValidationError, RuntimeError, TimeoutError):
        return False
    return True


async def list_tools(session: ClientSession) -> Catalog:
    """Input schemas by tool name, over all pages. Raises MCPError or ValidationError.

    The SDK learns here, and not after a call, which arguments travel as headers (case F6).
    """
    catalog: Catalog = {}
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await _page(session, cursor)
        catalog.update({tool.name: tool.input_schema for tool in page.tools})
        cursor = page.next_cursor
        if cursor is None:
            return catalog
    raise ServerUnavailable(f"tools/list has more than {MAX_PAGES} pages")


async def _page(session: ClientSession, cursor: str | None) -> ListToolsResult:
    params = None if cursor is None else PaginatedRequestParams(cursor=cursor)
    try:
        return await session.list_tools(params=params)
    except MCPError as error:
        if error.code == METHOD_NOT_FOUND:
            return ListToolsResult(tools=[])
        raise
