"""Calling a host's functions from an event loop without letting them stop it."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any


async def host_call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Calls host code: a coroutine function in the loop, anything else in a daemon thread, which it may block.

    A caller that is cancelled leaves the thread to itself: it cannot be stopped.
    """
    if inspect.iscoroutinefunction(function):
        return await function(*arguments, **named)
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def run() -> None:
        try:
            result, error = function(*arguments, **named), None
        except BaseException as raised:  # the host's own; handed to the caller
            result, error = None, raised
        try:
            loop.call_soon_threadsafe(_settle, future, result, error)
        except RuntimeError:  # the loop was closed meanwhile, so nobody waits
            return

    threading.Thread(target=run, name="engine-host-code", daemon=True).start()
    result = await future
    return await result if inspect.isawaitable(result) else result


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        future.set_exception(error)
    else:
        future.set_exception(RuntimeError(f"host code raised {type(error).__name__}"))
