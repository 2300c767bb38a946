"""Connections of a consumer: one a server, no retries, a socket timeout above every block (cases F1, F2)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import redis.asyncio.connection as aio
import redis.connection as sync
from redis.exceptions import RedisError, ResponseError

from ledger.consumer.steps import Address, Command
from ledger.errors import StoreUnavailable
from ledger.store.dialing import place, place_async
from ledger.store.settings import StoreSettings

# What a server may take beyond the time that it was asked to block.
MARGIN_SECONDS = 5.0


def connection_kwargs(settings: StoreSettings, node: Address | None, block_seconds: float) -> dict[str, Any]:
    """Arguments for a connection to `node`, or to the server of the URL.

    Raises ConfigError if the URL cannot be used.
    """
    kwargs = settings.connection_kwargs(node and (node[0] or settings.connection_kwargs()["host"], node[1]))
    # The shape of replies differs by protocol, and this one's is the same on every server.
    kwargs.update(socket_timeout=block_seconds + MARGIN_SECONDS, protocol=2)
    return kwargs


class SyncLink:
    """One connection for a thread."""

    def __init__(self, settings: StoreSettings, node: Address | None, block_seconds: float) -> None:
        self._settings = settings
        self._node = node
        self._block_seconds = block_seconds
        self._connection: Any = None

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Sends all commands in one write; replies in order, error replies among them. Raises StoreUnavailable."""
        try:
            if self._connection is None:
                node = self._node or place(self._settings).of_shard(0)
                kwargs = connection_kwargs(self._settings, node, self._block_seconds)
                self._connection = self._settings.connection_class(sync)(**kwargs)
                self._connection.connect()
            self._connection.send_packed_command(self._connection.pack_commands(commands), check_health=False)
            return [self._reply() for _ in commands]
        except (RedisError, OSError) as error:
            self.close()
            raise _unavailable(error) from None
        except BaseException:
            # Interrupted between a command and its reply: the next reply would answer the wrong question.
            self.close()
            raise

    def close(self) -> None:
        """Drops the connection; the next exchange makes another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def _reply(self) -> Any:
        try:
            return self._connection.read_response(disable_decoding=True, disconnect_on_error=False)
        except ResponseError as error:
            return error


class AsyncLink:
    """The same for an event loop."""

    def __init__(self, settings: StoreSettings, node: Address | None, block_seconds: float) -> None:
        self._settings = settings
        self._node = node
        self._block_seconds = block_seconds
        self._connection: Any = None

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """As `SyncLink.exchange`."""
        try:
            if self._connection is None:
                node = self._node or (await place_async(self._settings)).of_shard(0)
                kwargs = connection_kwargs(self._settings, node, self._block_seconds)
                self._connection = self._settings.connection_class(aio)(**kwargs)
                await self._connection.connect()
            async with asyncio.timeout(self._block_seconds + MARGIN_SECONDS):
                packed = self._connection.pack_commands(commands)
                await self._connection.send_packed_command(packed, check_health=False)
                return [await self._reply() for _ in commands]
        except (RedisError, OSError, TimeoutError) as error:
            await self.close()
            raise _unavailable(error) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """As `SyncLink.close`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def _reply(self) -> Any:
        try:
            return await self._connection.read_response(
                disable_decoding=True, timeout=math.inf, disconnect_on_error=False
            )
        except ResponseError as error:
            return error


def _unavailable(error: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"the store did not answer ({type(error).__name__})", sent=False)
