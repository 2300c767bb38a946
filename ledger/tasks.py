"""Ending tasks for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

PATIENCE_SECONDS = 0.25


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels `tasks` and returns when all have ended.

    Once is not enough: Python 3.11's `wait_for`, which redis-py sends with, forgets a cancellation that meets its end.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=PATIENCE_SECONDS)


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Runs `work` to its end; a cancellation that comes meanwhile takes effect then. Raises what `work` raises."""
    task = asyncio.create_task(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError
