"""What `mutation-ledger doctor` asks about MCP servers: can each be reached, and has it the tools we protect?"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable
from typing import IO

from ledger.config import Config, McpServerConfig
from workers.tools.connection import Connection
from workers.tools.handshake import Catalog, ServerUnavailable
from workers.tools.quiet import keep_content_out_of_logs
from workers.tools.server import open_channel

LIMIT_SECONDS = 10.0
LAST_WORDS = 200


def mcp_servers(config: Config) -> Iterable[tuple[str, bool, str]]:
    """One `(name, ok, detail)` per configured server: connected to and its tools listed within ten seconds.

    A tool that the configuration names and the server does not have is a fault: the rule for it protects nothing.
    """
    keep_content_out_of_logs()
    for name, server in sorted(config.mcp.servers.items()):
        ok, detail = asyncio.run(_check(server))
        yield f"mcp server {name}", ok, detail


async def _check(server: McpServerConfig) -> tuple[bool, str]:
    # No call is made here, so the server cannot quote arguments; its own words help whoever set it up.
    with tempfile.TemporaryFile() as stderr:
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                catalog = await _listed(server, stderr)
        except ServerUnavailable as error:
            return False, _with_last_words(str(error), stderr)
        except TimeoutError:
            return False, _with_last_words(f"no tool list within {LIMIT_SECONDS:g} s", stderr)
    missing = sorted(set(server.tools) - set(catalog))
    if missing:
        return False, f"configured tools that it does not have: {', '.join(missing)}"
    return True, f"{len(catalog)} tools"


async def _listed(server: McpServerConfig, stderr: IO[bytes]) -> Catalog:
    for probe in (True, False):
        connection = Connection(lambda: open_channel(server, stderr=stderr.fileno()), probe=probe)
        connection.start()
        try:
            await connection.ready()
        except ServerUnavailable:
            if not connection.probed_in_vain:
                raise
        else:
            return connection.catalog
        finally:
            await connection.close()
    raise ServerUnavailable("the server closed the connection")


def _with_last_words(problem: str, stderr: IO[bytes]) -> str:
    stderr.seek(0)
    lines = stderr.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"{problem}; its last words: {last[:LAST_WORDS]}" if last else problem
