"""A TCP proxy in front of a store, with the faults that networks have: lost replies, black holes, cuts, delays."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar
from weakref import WeakSet

from ledger.tasks import end_tasks

T = TypeVar("T")
CHUNK = 65536
QUIET_SECONDS = 0.02
ACCEPTING_TURNS = 5
"""Turns of the loop from an accepted connection to its streams, and a few."""


@dataclass(frozen=True, eq=False)
class _Loss:
    """A reply that is to be lost: which request it answers, what it must say, and what to do then."""

    marker: bytes
    saying: bytes
    then: Callable[[], None]


@dataclass(eq=False)
class _Pair:
    """One client connection and its connection to the store.

    `watched`: what was asked for in the requests on it that are not `answered` yet, or only in part.
    """

    client: asyncio.StreamWriter
    store: asyncio.StreamWriter
    sent: bytes = b""
    answered: bool = False
    watched: list[_Loss | Held] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def close(self) -> None:
        """Ends both sides."""
        self.client.close()
        self.store.close()


class Held:
    """A request kept from the store, or a reply kept from its client, until it is released."""

    def __init__(self, loop: asyncio.AbstractEventLoop, marker: bytes, saying: bytes = b"") -> None:
        self.marker = marker
        self.saying = saying
        self.arrived = threading.Event()
        self.passed = threading.Event()
        self._loop = loop
        self._released = asyncio.Event()

    def release(self) -> None:
        """Lets it go on, and waits until it did."""
        self._loop.call_soon_threadsafe(self._released.set)
        assert self.passed.wait(10)

    async def wait(self) -> None:
        """For the proxy: until released."""
        self.arrived.set()
        await self._released.wait()


class TcpProxy:
    """Listens on a free loopback port and forwards to `127.0.0.1:store_port`; faults are set by the methods.

    Runs in a thread of its own, so tests and the processes under test may block. `accepted` counts connections,
    `lost` replies that were dropped.
    """

    def __init__(self, store_port: int) -> None:
        self.store_port = store_port
        self.port = 0
        self.lost = 0
        self.accepted = 0
        self._delay = 0.0
        self._cuts: list[bytes | int] = []
        self._held: list[Held] = []
        self._replies_asked: list[_Loss | Held] = []
        self._pairs: set[_Pair] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._opened: WeakSet[asyncio.StreamWriter] = WeakSet()
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

    def lose_reply(self, marker: bytes, then: Callable[[], None] = lambda: None, *, saying: bytes = b"") -> None:
        """The next request that holds `marker` reaches the store and is run, but its reply is dropped and the
        connection is closed; `then` is called in between, in the proxy's thread. Counted in `lost`.

        With `saying`, replies pass until one to such a request holds that, too.
        """
        self._loop.call_soon_threadsafe(self._replies_asked.append, _Loss(marker, saying, then))

    def cut_request(self, at: bytes | int) -> None:
        """Of the next request that holds these bytes, or of the next such many bytes of requests, the store gets what
        comes before; then the connection is closed. Counted in `lost`.
        """
        self._loop.call_soon_threadsafe(self._cuts.append, at)

    def delay(self, seconds: float) -> None:
        """Everything takes so much longer in each direction; 0 is as before."""
        self._delay = seconds

    def hold_request(self, marker: bytes) -> Held:
        """Keeps the next request that holds `marker` from the store until it is released."""
        held = Held(self._loop, marker)
        self._loop.call_soon_threadsafe(self._held.append, held)
        return held

    def hold_reply(self, marker: bytes, *, saying: bytes = b"") -> Held:
        """Keeps the reply to the next request that holds `marker` from the client until it is released.

        With `saying`, replies pass until one to such a request holds that, too.
        """
        held = Held(self._loop, marker, saying)
        self._loop.call_soon_threadsafe(self._replies_asked.append, held)
        return held

    def disarm(self) -> None:
        """Forgets what was to be lost, cut or held."""
        self._loop.call_soon_threadsafe(self._cuts.clear)
        self._loop.call_soon_threadsafe(self._held.clear)
        self._loop.call_soon_threadsafe(self._replies_asked.clear)

    def cut(self) -> None:
        """Closes every connection now."""
        self._call(self._cut())

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
        # Also those that are accepted but not handed over yet, and those on their way to the store.
        for _ in range(ACCEPTING_TURNS):
            await asyncio.sleep(0)
        await end_tasks(self._serving)
        for writer in self._opened:
            # What is still to be sent must not keep a connection open.
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _cut(self) -> None:
        for pair in list(self._pairs):
            pair.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._opened.add(writer)
        serving = asyncio.ensure_future(self._serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_store, to_store = await asyncio.open_connection("127.0.0.1", self.store_port)
        except OSError:
            return
        else:
            self._opened.add(to_store)
            await self._forward(_Pair(writer, to_store), reader, from_store)
        finally:
            writer.close()

    async def _forward(self, pair: _Pair, from_client: asyncio.StreamReader, from_store: asyncio.StreamReader) -> None:
        self._pairs.add(pair)
        pair.tasks = [
            asyncio.ensure_future(self._requests(pair, from_client)),
            asyncio.ensure_future(self._replies(pair, from_store)),
        ]
        try:
            await asyncio.wait(pair.tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._pairs.discard(pair)
            pair.close()
            for task in pair.tasks:
                task.cancel()
            await asyncio.gather(*pair.tasks, return_exceptions=True)

    async def _requests(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._pass()
                self._mark(pair, data)
                cut = self._cut_in(data)
                if cut is not None:
                    pair.store.write(data[:cut])
                    await pair.store.drain()
                    self.lost += 1
                    return
                held = next((held for held in self._held if held.marker in data), None)
                if held is not None:
                    self._held.remove(held)
                    await held.wait()
                pair.store.write(data)
                await pair.store.drain()
                if held is not None:
                    held.passed.set()

    async def _pass(self) -> None:
        if self._delay:
            await asyncio.sleep(self._delay)
        await self._flowing.wait()

    def _cut_in(self, data: bytes) -> int | None:
        """Where these bytes of a request are to be cut off."""
        for number, at in enumerate(self._cuts):
            if isinstance(at, bytes):
                found = data.find(at)
                if found >= 0:
                    del self._cuts[number]
                    return found
            elif at < len(data):
                del self._cuts[number]
                return at
            else:
                self._cuts[number] = at - len(data)
        return None

    def _mark(self, pair: _Pair, data: bytes) -> None:
        if pair.answered:
            pair.watched, pair.answered = [], False
        # A marker may lie across two chunks.
        seen = pair.sent + data
        pair.sent = seen[-128:]
        # Several connections may carry such requests; the first reply that says it counts.
        pair.watched += [asked for asked in self._replies_asked if asked.marker in seen and asked not in pair.watched]

    async def _replies(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                if pair.watched:
                    data += await self._rest(reader)
                asked = self._asked(pair, data)
                pair.answered = True
                if isinstance(asked, _Loss):
                    asked.then()
                    self.lost += 1
                    return
                if asked is not None:
                    await asked.wait()
                await self._pass()
                pair.client.write(data)
                await pair.client.drain()
                if asked is not None:
                    asked.passed.set()

    def _asked(self, pair: _Pair, reply: bytes) -> _Loss | Held | None:
        """What is to happen to this reply; each is done once."""
        for asked in pair.watched:
            if asked in self._replies_asked and asked.saying in reply:
                self._replies_asked.remove(asked)
                return asked
        return None

    @staticmethod
    async def _rest(reader: asyncio.StreamReader) -> bytes:
        """Reads until the store is quiet, so that everything in the request has been run."""
        read = b""
        with contextlib.suppress(TimeoutError):
            while True:
                async with asyncio.timeout(QUIET_SECONDS):
                    data = await reader.read(CHUNK)
                if not data:
                    break
                read += data
        return read
