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
        self._idle: deque[tuple[Any, float]] = deque()
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
        connection = self._acquire(until)
        try:
            result = work(lambda commands: _exchange(connection, commands, until))
        except BaseException:
            # Also a greenlet killed in the middle must not leave a half-read connection to the next caller.
            connection.disconnect()
            raise
        self._release(connection)
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
        connection = dial(self._settings, self.node)
        try:
            _exchange(connection, commands, math.inf)
        finally:
            connection.disconnect()

    def close(self) -> None:
        """Closes all idle connections."""
        while (connection := self._pop_idle()) is not None:
            connection.disconnect()

    def _acquire(self, until: float) -> Any:
        while (connection := self._pop_idle()) is not None:
            if connection._sock is not None and not _is_stale(connection):
                return connection
            connection.disconnect()
        connection = dial(self._settings, self.node)
        try:
            self._meet(lambda commands: _exchange(connection, commands, until))
        except BaseException:
            connection.disconnect()
            raise
        return connection

    def _pop_idle(self) -> Any:
        try:
            return self._idle.pop()[0]
        except IndexError:  # asking first would leave another thread time to take the last one
            return None

    def _release(self, connection: Any) -> None:
        """Keeps the connection for the next call, and closes those that a burst left behind.

        The last one used is taken first, so those that nobody needs gather at the front.
        """
        now = time.monotonic()
        self._idle.append((connection, now))
        try:
            while now - self._idle[0][1] > IDLE_SECONDS:
                self._idle.popleft()[0].disconnect()
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


def _exchange(connection: Any, commands: Sequence[Command], until: float) -> list[Any]:
    """Sends all commands at once and reads every reply; an error reply is returned, not raised."""
    sent = False
    replies: list[Any] = []
    try:
        _require_open(connection)
        packed = connection.pack_commands(commands)
        reach("store.sending")
        sent = True
        connection.send_packed_command(packed, check_health=False)
        reach("store.sent")
        for _ in commands:
            try:
                timeout = min(connection.socket_timeout, max(0.01, until - time.monotonic()))
                reply = connection.read_response(disable_decoding=True, timeout=timeout, disconnect_on_error=False)
                replies.append(reply)
            except ResponseError as error:
                replies.append(error)
    except (RedisError, OSError) as error:
        kind = Unconfirmed if sent else StoreUnavailable
        raise kind(f"the store did not answer ({type(error).__name__})", sent=sent) from None
    reach("store.answered")
    return replies


def _require_open(connection: Any) -> None:
    """redis-py would reconnect on its own; a write and its WAITAOF must share one connection (C-20)."""
    if connection._sock is None:
        raise RedisConnectionError("the connection was closed")


def _is_stale(connection: Any) -> bool:
    """An idle connection with something to read was closed by the server or is out of step."""
    try:
        return bool(connection.can_read(timeout=0))
    except (RedisError, OSError):
        return True
