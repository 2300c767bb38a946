"""Connections of threads and greenlets to one server of the store: met and verified before anything is sent."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from ledger.durability import COMMANDS, Report, facts_from, judge, require
from ledger.errors import StoreUnavailable, Unconfirmed
from ledger.faultpoints import reach
from ledger.store.dialing import dial
from ledger.store.placement import Node
from ledger.store.replies import BlockingReplies
from ledger.store.settings import StoreSettings
from ledger.store.wire import translate

T = TypeVar("T")
Command = Sequence[bytes | str | int]
Exchange = Callable[[Sequence[Command]], list[Any]]
RECHECK_SECONDS = 10.0
IDLE_SECONDS = 10.0


class Connections:
    """Each use takes a connection of its own, so that a WAITAOF on it covers what went before it (C-20).

    Connections are kept; one that failed is dropped, and nothing is sent twice.
    """

    def __init__(
        self, settings: StoreSettings, node: Node | None, met: Callable[[Exchange], None] = lambda exchange: None
    ) -> None:
        """`met` is called with each life of the server that was not met before, and may raise."""
        self.node = node
        self._met = met
        self.report: Report | None = None
        self._settings = settings
        self._idle: deque[tuple[BlockingReplies, float]] = deque()
        self._run_id = ""
        self._checking = threading.Lock()
        self._checked_at = -math.inf

    @property
    def life(self) -> str:
        """Which life of the server was met last; empty before the first."""
        return self._run_id

    def use(self, work: Callable[[Exchange], T], until: float = math.inf) -> T:
        """Hands `work` the means to exchange commands on one connection; a connection that failed is dropped.

        No reply is waited for beyond `until`, in seconds of `time.monotonic`: also what must be asked of a new
        connection before `work` takes of the same time.

        Raises:
            StoreUnavailable, StoreUnsafe: nothing was sent, or what `work` raises.
        """
        stream = self._acquire(until)
        try:
            result = work(lambda commands: _exchange(stream, commands, until))
        except BaseException:
            # Also a greenlet killed in the middle must not leave a half-read connection to the next caller.
            stream.close()
            raise
        self._release(stream)
        return result

    def meet(self) -> None:
        """Connects and verifies a server that was not met before."""
        self.use(lambda _: None)

    def recheck(self, until: float = math.inf) -> Report:
        """Looks at the settings again (C-21). Raises StoreUnavailable, StoreUnsafe."""
        return self.use(self._verify, until)

    def recheck_if_due(self, until: float) -> None:
        """The same, every 10 s."""
        if time.monotonic() - self._checked_at <= RECHECK_SECONDS:
            return
        # One looks, everybody else waits for what it finds: nothing is sent on settings nobody has seen (C-21).
        if not self._checking.acquire(timeout=max(0.0, until - time.monotonic())):
            raise StoreUnavailable("the store's settings are still being looked at", sent=False)
        try:
            if time.monotonic() - self._checked_at > RECHECK_SECONDS:
                self.recheck(until)
        finally:
            self._checking.release()

    def tell(self, commands: Sequence[Command]) -> None:
        """Sends commands on a connection of their own to a server that may be one not to be trusted.

        Raises StoreUnavailable.
        """
        stream = BlockingReplies(dial(self._settings, self.node))
        try:
            _exchange(stream, commands, math.inf)
        finally:
            stream.close()

    def close(self) -> None:
        """Closes all idle connections."""
        while (stream := self._pop_idle()) is not None:
            stream.close()

    def _acquire(self, until: float) -> BlockingReplies:
        while (stream := self._pop_idle()) is not None:
            if not stream.is_stale:
                return stream
            stream.close()
        stream = BlockingReplies(dial(self._settings, self.node))
        try:
            self._meet(lambda commands: _exchange(stream, commands, until))
        except BaseException:
            stream.close()
            raise
        return stream

    def _pop_idle(self) -> BlockingReplies | None:
        try:
            return self._idle.pop()[0]
        except IndexError:  # asking first would leave another thread time to take the last one
            return None

    def _release(self, stream: BlockingReplies) -> None:
        """Keeps the connection for the next call, and closes those that a burst left behind.

        The last one used is taken first, so those that nobody needs gather at the front.
        """
        now = time.monotonic()
        self._idle.append((stream, now))
        try:
            while now - self._idle[0][1] > IDLE_SECONDS:
                self._idle.popleft()[0].close()
        except IndexError:  # other threads took them meanwhile
            return

    def _meet(self, exchange: Exchange) -> None:
        """A server life not met before has its settings verified first (C-21)."""
        (info,) = exchange([["INFO", "server"]])
        if isinstance(info, ResponseError):
            raise translate(info) from None
        run_id = run_id_in(info)
        if run_id != self._run_id:
            self._verify(exchange)
            self._met(exchange)
            self._run_id = run_id

    def _verify(self, exchange: Exchange) -> Report:
        facts = facts_from(exchange(COMMANDS))
        self.report = judge(facts, self._settings.redis)
        require(facts, self._settings.redis)
        self._checked_at = time.monotonic()
        return self.report


def run_id_in(info: bytes) -> str:
    """The server's life, from INFO."""
    for line in info.decode().splitlines():
        if line.startswith("run_id:"):
            return line[7:].strip()
    return ""


def _exchange(stream: BlockingReplies, commands: Sequence[Command], until: float) -> list[Any]:
    """Sends all commands at once and reads every reply; an error reply is returned, not raised."""
    sent = False
    try:
        if not stream.is_open:
            raise RedisConnectionError("the connection was closed")
        reach("store.sending")
        sent = True
        stream.send(commands)
        reach("store.sent")
        replies = [stream.read(until) for _ in commands]
    except (RedisError, OSError) as error:
        kind = Unconfirmed if sent else StoreUnavailable
        raise kind(f"the store did not answer ({type(error).__name__})", sent=sent) from None
    reach("store.answered")
    return replies
