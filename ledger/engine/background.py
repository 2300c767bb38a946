"""An event loop in a thread of its own, and host code kept out of it."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ledger.tasks import end_tasks

T = TypeVar("T")


class BackgroundLoop:
    """Runs coroutines for callers of any other thread. The thread does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """The result for an event loop of the caller: `await` it there."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for the result. A caller that is interrupted cancels the work.

        Raises RuntimeError in the loop's own thread, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("an adapter's async method must use the engine's *_async methods")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancels what still runs and ends the thread."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(_wind_up(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()


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


async def _wind_up() -> None:
    await end_tasks(task for task in asyncio.all_tasks() if task is not asyncio.current_task())
    await asyncio.get_running_loop().shutdown_default_executor()
    # Closed sockets are let go of in the loop's next turn.
    await asyncio.sleep(0)
