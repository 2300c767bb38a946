"""Starting the misbehaving server, making call contexts, and counting what happened."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ledger.config import McpServerConfig
from ledger.long_integers import read_json
from workers.tools import CallContext, IncomingMessage, ToolReply, ToolRouter

FAKE = Path(__file__).with_name("fake_mcp.py")
COMMAND = [sys.executable, "-I", "-S", str(FAKE)]
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class FakeServer:
    """The settings and the log of one misbehaving server; see `fake_mcp`."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.log = directory / "fake-mcp.jsonl"
        self.settings = {"log": str(self.log), **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def stdio(self, **overrides: Any) -> McpServerConfig:
        """The configuration under which a router starts it."""
        return McpServerConfig(command=COMMAND, env={"FAKE_MCP": json.dumps(self.settings)}, **overrides)

    def http(self, **overrides: Any) -> McpServerConfig:
        """The configuration under which a router reaches the one started by `start_http`."""
        return McpServerConfig(url=f"http://127.0.0.1:{self.port}/mcp", **overrides)

    def start_http(self) -> None:
        """Run it as a Streamable HTTP server, on the same port as before when started again."""
        settings = {**self.settings, "http": True, "port": self.port}
        self._process = subprocess.Popen(
            COMMAND, env={**os.environ, "FAKE_MCP": json.dumps(settings)}, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def stop_http(self) -> None:
        """Kill it; harmless when it does not run."""
        if self._process is not None and self._process.stdout is not None:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
            self._process = None

    def events(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """The log's lines of one kind with these fields."""
        if not self.log.exists():
            return []
        lines = [read_json(line) for line in self.log.read_text().splitlines()]
        wanted = {"event": event, **fields}
        return [line for line in lines if all(line.get(key) == value for key, value in wanted.items())]

    def effects(self) -> int:
        """How many `tools/call` requests the server acted on."""
        return len(self.events("effect"))

    def pids(self) -> set[int]:
        """Every process it ever was, its children too."""
        return {line["pid"] for line in self.events("start")} | {line["child"] for line in self.events("child")}


def alive(pids: set[int]) -> set[int]:
    """Those of `pids` that run still; a zombie does not."""
    found = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.add(pid)
    return found


def call_context(
    seconds: float = 10.0,
    *,
    cancel: asyncio.Event | None = None,
    last_check: Callable[[], str | None] = lambda: None,
    attempt: str = "attempt-1",
) -> CallContext:
    """A context whose deadline is `seconds` away."""
    return CallContext(
        mutation_id="5" * 64,
        logical_turn_id="turn-1",
        attempt=attempt,
        run_id="run-1",
        session_id="session-1",
        deadline_monotonic=time.monotonic() + seconds,
        cancel=cancel or asyncio.Event(),
        traceparent=TRACEPARENT,
        last_check=last_check,
        message=IncomingMessage("session-1", "ops", "dana", "delivery-1", "turn-1", "please"),
    )


@asynccontextmanager
async def routed(
    config: McpServerConfig,
    *,
    cancel_drain_seconds: float = 0.3,
    name: str = "fake",
    wait_seconds: float = 0.0,
) -> AsyncIterator[ToolRouter]:
    """A started router with one server, closed at the end."""
    router = ToolRouter({name: config}, cancel_drain_seconds=cancel_drain_seconds)
    await router.start(wait_seconds=wait_seconds)
    try:
        yield router
    finally:
        await router.close()


def call_one(config: McpServerConfig, tool: str, context: CallContext | None = None, **arguments: Any) -> ToolReply:
    """One call in a router of its own."""

    async def main() -> ToolReply:
        async with routed(config) as router:
            return await router.call(f"mcp__fake__{tool}", arguments, context or call_context())

    return asyncio.run(main())
