"""Commands out and replies in on one connected socket: many per turn of an event loop, or for a thread that waits."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence

# Taken before gevent puts its own in the place of it: a look that never waits needs no switch to another greenlet.
from select import POLLIN, poll
from typing import Any

import hiredis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse

Command = Sequence[bytes | str | int]
READ_BYTES = 65_536
_MORE: Any = object()


class ReplyStream:
    """Takes over the socket of a redis.asyncio connection after its handshake.

    redis-py reads one reply per coroutine, which costs more than the ledger's own work; here a batch is parsed as it
    arrives. Error replies are returned, not raised.
    """

    def __init__(self, connection: Any) -> None:
        self._in = connection._reader
        self._out = connection._writer
        self._replies = _reader(connection)

    @property
    def is_open(self) -> bool:
        """Whether the socket can be used; redis-py would open another by itself, this never does (C-20)."""
        return not (self._in.at_eof() or self._in.exception() or self._out.is_closing())

    def send(self, commands: Iterable[Command]) -> None:
        """Hands all commands to the transport in one piece."""
        self._out.write(_packed(commands))

    async def read(self) -> Any:
        """The next reply.

        Raises:
            RedisConnectionError: the connection ended, or the server said that it ends it.
        """
        reply = self._replies.gets()
        while reply is _MORE:
            data = await self._in.read(READ_BYTES)
            if not data:
                raise RedisConnectionError("the connection was closed")
            self._replies.feed(data)
            reply = self._replies.gets()
        if isinstance(reply, RedisConnectionError):
            raise reply
        return reply


class BlockingReplies:
    """The same for a thread or greenlet that waits: takes over the socket of a redis-py connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._sock = connection._sock
        self._timeout = connection.socket_timeout or math.inf
        self._replies = _reader(connection)

    @property
    def is_open(self) -> bool:
        """Whether the socket can be used; redis-py would open another by itself, this never does (C-20)."""
        return self._sock is not None and self._connection._sock is self._sock

    @property
    def is_stale(self) -> bool:
        """Whether an idle connection was closed by the server, or is out of step because something came unasked."""
        if not self.is_open or self._replies.has_data():
            return True
        pending = getattr(self._sock, "pending", None)
        if pending is not None and pending():
            return True
        look = poll()
        look.register(self._sock.fileno(), POLLIN)
        return bool(look.poll(0))

    def send(self, commands: Iterable[Command]) -> None:
        """Sends all commands in one piece."""
        self._sock.settimeout(_seconds(self._timeout))
        self._sock.sendall(_packed(commands))

    def read(self, until: float) -> Any:
        """The next reply, waited for until `until` in seconds of `time.monotonic`.

        Raises:
            RedisConnectionError: the connection ended, or the server said that it ends it.
            TimeoutError: nothing came in time.
        """
        reply = self._replies.gets()
        while reply is _MORE:
            self._sock.settimeout(_seconds(min(self._timeout, max(0.01, until - time.monotonic()))))
            data = self._sock.recv(READ_BYTES)
            if not data:
                raise RedisConnectionError("the connection was closed")
            self._replies.feed(data)
            reply = self._replies.gets()
        if isinstance(reply, RedisConnectionError):
            raise reply
        return reply

    def close(self) -> None:
        """Closes the connection."""
        self._connection.disconnect()


def _reader(connection: Any) -> Any:
    return hiredis.Reader(protocolError=InvalidResponse, replyError=connection._parser.parse_error, notEnoughData=_MORE)


def _packed(commands: Iterable[Command]) -> bytes:
    pack: Any = hiredis.pack_command
    return b"".join([pack(tuple(command)) for command in commands])


def _seconds(timeout: float) -> float | None:
    return None if math.isinf(timeout) else timeout
