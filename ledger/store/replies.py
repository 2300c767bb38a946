"""Commands out and replies in on one connected socket, many per turn of the event loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
        self._replies = hiredis.Reader(
            protocolError=InvalidResponse, replyError=connection._parser.parse_error, notEnoughData=_MORE
        )

    @property
    def is_open(self) -> bool:
        """Whether the socket can be used; redis-py would open another by itself, this never does (C-20)."""
        return not (self._in.at_eof() or self._in.exception() or self._out.is_closing())

    def send(self, commands: Iterable[Command]) -> None:
        """Hands all commands to the transport in one piece."""
        pack: Any = hiredis.pack_command
        self._out.write(b"".join([pack(tuple(command)) for command in commands]))

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
