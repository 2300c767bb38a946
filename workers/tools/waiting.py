"""Waiting for something under a call's absolute deadline and its cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from workers.tools.results import CallContext, MCPExecutionTimeout

T = TypeVar("T")


class CallCancelled(Exception):
    """The call was cancelled before anything was sent."""


async def finished(task: asyncio.Future[Any], context: CallContext) -> bool:
    """Wait for `task` until the deadline or the cancellation; whether it is done. It is left running."""
    if context.stopped() is not None:
        return task.done()
    # Much ends in its first step and needs neither timer nor watcher.
    await asyncio.sleep(0)
    if task.done():
        return True
    cancel = asyncio.create_task(context.cancel.wait())
    try:
        await asyncio.wait({task, cancel}, timeout=context.remaining(), return_when=asyncio.FIRST_COMPLETED)
    finally:
        cancel.cancel()
    return task.done()


async def acquire(slots: asyncio.Semaphore, context: CallContext) -> None:
    """Take a slot. Raises as `within` does; a slot that comes too late is given back."""
    if not slots.locked():
        await slots.acquire()
        return
    task = asyncio.create_task(slots.acquire())
    taken = False
    try:
        taken = await finished(task, context)
    finally:
        if not taken and not task.cancel():
            slots.release()
    if not taken:
        raise _ended(context)


async def within(work: Coroutine[Any, Any, T], context: CallContext) -> T:
    """The result of `work`, which is given up at the deadline or cancellation.

    Raises MCPExecutionTimeout (nothing was dispatched yet) or CallCancelled.
    """
    task = asyncio.create_task(work)
    try:
        if await finished(task, context):
            return task.result()
    finally:
        task.cancel()
    raise _ended(context)


def _ended(context: CallContext) -> Exception:
    return CallCancelled() if context.cancel.is_set() else MCPExecutionTimeout(dispatched=False)
