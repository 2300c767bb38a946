"""Telling an adapter what happened, one thing after the other; what it raises is logged and changes nothing."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import structlog

from ledger.hostcode import host_call

log = structlog.get_logger(__name__)


class Teller:
    """Calls host code in order, in a task of its own, so that slow host code delays nobody but itself."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], Any]] = deque()
        self._task: asyncio.Task[None] | None = None

    def tell(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        """Calls `function` when everything told before has returned."""

        async def call() -> None:
            await host_call(function, *arguments, **named)

        self._waiting.append(call)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def told(self, seconds: float) -> None:
        """Returns when everything was told, at the latest after `seconds`; the rest is given up."""
        if self._task is None:
            return
        _, unfinished = await asyncio.wait({self._task}, timeout=seconds)
        if unfinished:
            self._waiting.clear()
            self._task.cancel()
            log.warning("adapter_too_slow", seconds=seconds)

    async def _run(self) -> None:
        while self._waiting:
            call = self._waiting.popleft()
            try:
                await call()
            except Exception as error:  # best effort: a settlement stands whatever an adapter does (C-25)
                log.warning("adapter_failed", error=type(error).__name__)
