"""A TCP proxy in front of a store, with the faults that networks have: lost replies, black holes, cuts, delays."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
CHUNK = 65536
QUIET_SECONDS = 0.02


@dataclass(eq=False)
class _Pair:
    """One client connection and its connection to the store."""

    client: asyncio.StreamWriter
    store: asyncio.StreamWriter
    sent: bytes = b""
    doomed: Callable[[], None] | None = None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def close(self) -> None:
        """Ends both sides."""
        self.client.close()
        self.store.close()


class TcpProxy:
    """Listens on a free loopback port and forwards to `127.0.0.1:store_port`; faults are set by the methods.

    Runs in a thread of its own, so tests and the processes under test may block.
    """

    def __init__(self, store_port: int) -> None:
        self.store_port = store_port
        self.port = 0
        self.lost = 0
        self._markers: list[tuple[bytes, Callable[[], None]]] = []
        self._pairs: set[_Pair] = set()
        self._delay = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._flowing = asyncio.Event()

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> TcpProxy:
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def lose_reply(self, marker: bytes, then: Callable[[], None] = lambda: None) -> None:
        """The next request that holds `marker` reaches the store and is run, but its reply is dropped and the
        connection is closed; `then` is called in between, in the proxy's thread. Counted in `lost`."""
        self._loop.call_soon_threadsafe(self._markers.append, (marker, then))

    @property
    def armed(self) -> bool:
        """Whether a reply is still to be lost."""
        return bool(self._markers)

    def disarm(self) -> None:
        """Forgets replies that were to be lost."""
        self._loop.call_soon_threadsafe(self._markers.clear)

    def cut(self) -> None:
        """Closes every connection now."""
        self._call(self._cut())

    def delay_replies(self, seconds: float) -> None:
        """Holds every reply back for so long; 0 ends it."""
        self._delay = seconds

    @contextlib.contextmanager
    def black_hole(self) -> Iterator[None]:
        """Nothing passes in either direction inside the block; connections stay, new ones get no answer."""
        self._loop.call_soon_threadsafe(self._flowing.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._flowing.set)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _start(self) -> None:
        self._flowing.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = [task for pair in self._pairs for task in pair.tasks]
        await self._cut()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _cut(self) -> None:
        for pair in list(self._pairs):
            pair.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_store, to_store = await asyncio.open_connection("127.0.0.1", self.store_port)
        except OSError:
            writer.close()
            return
        pair = _Pair(writer, to_store)
        self._pairs.add(pair)
        pair.tasks = [
            asyncio.ensure_future(self._requests(pair, reader)),
            asyncio.ensure_future(self._replies(pair, from_store)),
        ]
        await asyncio.wait(pair.tasks, return_when=asyncio.FIRST_COMPLETED)
        pair.close()
        self._pairs.discard(pair)

    async def _requests(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._flowing.wait()
                self._mark(pair, data)
                pair.store.write(data)
                await pair.store.drain()

    def _mark(self, pair: _Pair, data: bytes) -> None:
        # A marker may lie across two chunks.
        seen = pair.sent + data
        pair.sent = seen[-128:]
        for entry in self._markers:
            if entry[0] in seen:
                self._markers.remove(entry)
                pair.doomed = entry[1]
                return

    async def _replies(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                if pair.doomed is not None:
                    await self._swallow(reader)
                    pair.doomed()
                    self.lost += 1
                    return
                if self._delay:
                    await asyncio.sleep(self._delay)
                await self._flowing.wait()
                pair.client.write(data)
                await pair.client.drain()

    @staticmethod
    async def _swallow(reader: asyncio.StreamReader) -> None:
        """Reads until the store is quiet, so that everything in the request has been run."""
        with contextlib.suppress(TimeoutError):
            while True:
                async with asyncio.timeout(QUIET_SECONDS):
                    if not await reader.read(CHUNK):
                        return
