"""The store for threads and greenlets: one pinned connection per call, script and WAITAOF in one send."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeVar, cast

from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ledger.durability import COMMANDS, Report, facts_from, judge, require
from ledger.errors import StoreUnavailable, Unconfirmed
from ledger.faultpoints import reach
from ledger.store.call import ScriptCall
from ledger.store.opening import adopt_all, adopt_first, init_commands
from ledger.store.settings import StoreSettings
from ledger.store.view import LedgerView
from ledger.store.wire import StoreChanged, check_aof, is_known_already, is_missing_script, translate

T = TypeVar("T")
Command = Sequence[bytes | str | int]
RECHECK_SECONDS = 10.0
IDLE_SECONDS = 10.0
ADOPTIONS_MAX = 3
"""A store is accepted by a person; one that changes its id again and again is not usable."""


class SyncStore:
    """Runs script calls from any thread or greenlet.

    Each call takes a connection of its own for the script and the WAITAOF after it, so that the confirmation covers
    this write (C-20). Connections are kept; a connection that failed is dropped, and nothing is sent twice.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self.settings = settings
        self.view = LedgerView(settings.redis.shards)
        self._kwargs = settings.connection_kwargs()
        self._idle: deque[tuple[Any, float]] = deque()
        self._run_id = ""
        self._opened = False
        self._lock = threading.Lock()
        self._checking = threading.Lock()
        self.report: Report | None = None
        self._checked_at = -math.inf

    def open(self) -> None:
        """Verifies the store's settings and agrees on its id; safe to call again.

        Raises:
            StoreUnsafe: the settings cannot keep the promise (C-21).
            StoreUnavailable: the store cannot be reached now.
            StoreWentBack, ConfigError: see `ledger.store.opening`.
        """
        self._release(self._acquire())
        with self._lock:
            if not self._opened:
                commands = init_commands(self.view)
                adopt_first(self.view, self.command([commands[0]])[0], self.settings.redis)
                adopt_all(self.view, self.command(init_commands(self.view)))
                self._opened = True

    def close(self) -> None:
        """Closes all idle connections."""
        while (connection := self._pop_idle()) is not None:
            connection.disconnect()

    def run(self, call: ScriptCall[T]) -> T:
        """Runs one call and, if it wrote, waits until the write is confirmed on disk.

        Raises:
            Refused: a rule said no; nothing changed.
            Unconfirmed: sent, but not confirmed in time; the same call may be sent again (C-22).
            StoreUnavailable: not sent, or refused by the server.
            StoreWentBack: see C-27.
        """
        if not self._opened:
            self.open()
        for _ in range(ADOPTIONS_MAX):
            try:
                return self._once(call)
            except StoreChanged as changed:
                self.view.adopt(call.shard, changed.store_id)
        raise StoreUnavailable("the store keeps changing its id", sent=False)

    def command(self, commands: Sequence[Command]) -> list[Any]:
        """Runs plain commands on one connection, all replies in order; for set-up and tools, not for ledger writes.

        Raises:
            StoreUnavailable: the connection failed.
            LedgerError: the server refused a command.
        """
        connection = self._acquire()
        replies = self._exchange(connection, commands)
        self._release(connection)
        for reply in replies:
            if isinstance(reply, ResponseError):
                raise translate(reply) from None
        return replies

    def recheck(self) -> Report:
        """Looks at the settings again; called every 10 s and by `/readyz` (C-21).

        Raises:
            StoreUnavailable, StoreUnsafe: the promise cannot be kept now.
        """
        connection = self._acquire()
        try:
            self._verify(connection)
        except BaseException:
            connection.disconnect()
            raise
        self._release(connection)
        if self.report is None:
            raise StoreUnavailable("the store was not checked yet", sent=False)
        return self.report

    def _recheck_if_due(self) -> None:
        if time.monotonic() - self._checked_at <= RECHECK_SECONDS:
            return
        # One looks, everybody else waits for what it finds: nothing is sent on settings nobody has seen (C-21).
        with self._checking:
            if time.monotonic() - self._checked_at > RECHECK_SECONDS:
                self.recheck()

    def _once(self, call: ScriptCall[T]) -> T:
        wait = self.settings.waits_aof
        sent = self.view.arguments(call)
        commands: list[Command] = [sent]
        if wait:
            commands.append(self.settings.aof_command())
        self._recheck_if_due()
        connection = self._acquire()
        replies = self._exchange(connection, commands)
        if is_missing_script(replies[0]):
            loaded = self._exchange(connection, [call.script.loading])
            if isinstance(loaded[0], ResponseError) and not is_known_already(loaded[0]):
                self._release(connection)
                raise translate(loaded[0]) from None
            replies = self._exchange(connection, commands)
        self._release(connection)
        reply = replies[0]
        if isinstance(reply, ResponseError):
            raise translate(reply) from None
        n = reply[0]
        if n >= 0:
            if wait:
                unconfirmed = check_aof(replies[1], self.settings.redis.aof_local, self.settings.redis.aof_replicas)
                if unconfirmed is not None:
                    raise unconfirmed
            self.view.confirmed(call.shard, n, cast("bytes", sent[4]))
        return call.decode(reply)

    def _exchange(self, connection: Any, commands: Sequence[Command]) -> list[Any]:
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
                    replies.append(connection.read_response(disable_decoding=True, disconnect_on_error=False))
                except ResponseError as error:
                    replies.append(error)
        except (RedisError, OSError) as error:
            connection.disconnect()
            kind = Unconfirmed if sent else StoreUnavailable
            raise kind(f"the store did not answer ({type(error).__name__})", sent=sent) from None
        except BaseException:
            # A greenlet killed in the middle must not leave a half-read connection to the next caller.
            connection.disconnect()
            raise
        reach("store.answered")
        return replies

    def _acquire(self) -> Any:
        while (connection := self._pop_idle()) is not None:
            if connection._sock is not None and not _is_stale(connection):
                return connection
            connection.disconnect()
        connection = self._connect()
        try:
            self._meet(connection)
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

    def _connect(self) -> Any:
        kwargs = dict(self._kwargs)
        kind: Any = Connection
        if "path" in kwargs:
            kind = UnixDomainSocketConnection
        elif self.settings.url.startswith("rediss:"):
            kind = SSLConnection
        connection = kind(**kwargs)
        try:
            connection.connect()
        except (RedisConnectionError, RedisTimeoutError, OSError) as error:
            raise StoreUnavailable(f"the store cannot be reached ({type(error).__name__})", sent=False) from None
        return connection

    def _meet(self, connection: Any) -> None:
        """A server life not met before has its settings verified first (C-21)."""
        replies = self._exchange(connection, [["INFO", "server"]])
        if isinstance(replies[0], ResponseError):
            raise translate(replies[0]) from None
        run_id = _run_id(replies[0])
        if run_id != self._run_id:
            self._verify(connection)
            self._run_id = run_id

    def _verify(self, connection: Any) -> None:
        facts = facts_from(self._exchange(connection, COMMANDS))
        self.report = judge(facts, self.settings.redis)
        require(facts, self.settings.redis)
        self._checked_at = time.monotonic()


def _run_id(info: bytes) -> str:
    for line in info.decode().splitlines():
        if line.startswith("run_id:"):
            return line[7:].strip()
    return ""


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
