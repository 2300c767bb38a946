"""The stdio transport: newline-delimited JSON-RPC over the pipes of a server process.

The SDK's own stdio client is not used here: its reader costs the square of a line's length, it waits for ever
on a reply that is not UTF-8, it logs what it cannot parse, and its shutdown is waited for.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from ledger.config import McpServerConfig, resolve_secret
from ledger.faultpoints import reach
from ledger.tasks import to_the_end
from workers.tools.channel import Channel, Health
from workers.tools.one_call import CURRENT
from workers.tools.process import ServerProcess
from workers.tools.wire import BrokenLine, decode, encode

# Lines without a message that are read in one go, before the loop gets a turn.
STRAY_LINES = 64


@asynccontextmanager
async def open_stdio(config: McpServerConfig, *, stderr: int = asyncio.subprocess.DEVNULL) -> AsyncIterator[Channel]:
    """Start the server of `config` and speak with it; at the end its whole process tree is gone.

    Only a few harmless variables of our environment reach the server, and those of the configuration. Its
    stderr goes to that descriptor, which is not our own: it may quote arguments, and ours is a log. Raises
    OSError if it cannot be started, ConfigError for a secret that is not there.
    """
    env = get_default_environment() | {key: resolve_secret(value) for key, value in config.env.items()}
    async with _output(config.reply_read_bytes) as (lines, stdout):
        try:
            process = await ServerProcess.spawn(
                config.command or [],
                env=env,
                cwd=config.cwd,
                stdout=stdout,
                stderr=stderr,
            )
        finally:
            os.close(stdout)
        inbox, reader = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        health = Health()
        reading = asyncio.create_task(_read(lines, inbox, health))
        try:
            yield Channel(reader=reader, writer=Writer(process, health), health=health)
        finally:
            health.fail("closed")
            reader.close()
            # The server may have to write before it can end, so its output is drained until it has.
            # Whoever is in a hurry must not leave a process behind that nobody waits for.
            await to_the_end(_ended(process, reading))


async def _ended(process: ServerProcess, reading: asyncio.Task[None]) -> None:
    await process.stop()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


@asynccontextmanager
async def _output(limit: int) -> AsyncIterator[tuple[asyncio.StreamReader, int]]:
    """A pipe to read lines of up to `limit` bytes from, and the descriptor to write them to."""
    ours, theirs = os.pipe()
    lines = asyncio.StreamReader(limit=limit)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(ours, "rb", buffering=0)
    )
    try:
        yield lines, theirs
    finally:
        transport.close()


async def _read(
    lines: asyncio.StreamReader, inbox: MemoryObjectSendStream[SessionMessage | Exception], health: Health
) -> None:
    """Pass messages on until the output ends or cannot be trusted; then let the rest run dry."""
    async with inbox:
        health.fail(await _pass_on(lines, inbox))
    while await lines.read(65536):
        pass


async def _pass_on(lines: asyncio.StreamReader, inbox: MemoryObjectSendStream[SessionMessage | Exception]) -> str:
    """Why it ended."""
    stray = 0
    while True:
        try:
            message = decode(await lines.readuntil())
        except asyncio.IncompleteReadError:
            return "the server ended"
        except asyncio.LimitOverrunError:
            return "a line of the server is too long"
        except BrokenLine:
            return "a line of the server cannot be read"
        if message is not None:
            try:
                await inbox.send(SessionMessage(message))
            except anyio.BrokenResourceError:
                return "closed"
            continue
        stray += 1
        if stray % STRAY_LINES == 0:
            await asyncio.sleep(0)


class Writer:
    """The session's write stream: one line at a time, the last check before the first byte of a call."""

    def __init__(self, process: ServerProcess, health: Health) -> None:
        self._process = process
        self._health = health
        self._turn = asyncio.Lock()
        self._torn = False

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message. Raises NotSent on a last check's no, BrokenResourceError if the pipe is gone."""
        line = memoryview(encode(item.message))
        async with self._turn:
            sent = await self._begin(line)
            try:
                while sent < len(line):
                    await self._process.writable()
                    sent += self._write(line[sent:])
            finally:
                if sent < len(line):
                    # Half a line would swallow the next one.
                    self._torn = True
                    self._health.fail("a request was written in part")
        if CURRENT.get() is not None:
            reach("dispatch.sent")

    async def _begin(self, line: memoryview) -> int:
        """Move the first bytes; how many."""
        dispatch = CURRENT.get()
        while True:
            sent = 0
            if dispatch is not None:
                dispatch.hand_over()
            try:
                sent = self._write(line)
            finally:
                if dispatch is not None and not sent:
                    dispatch.take_back()
            if sent:
                return sent
            await self._process.writable()

    def _write(self, data: memoryview) -> int:
        if self._torn:
            raise anyio.BrokenResourceError
        try:
            return self._process.write(data)
        except OSError:
            self._torn = True
            raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        """Part of the stream protocol; the pipe is closed with the process."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
