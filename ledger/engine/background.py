"""An event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
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


async def _wind_up() -> None:
    await end_tasks(task for task in asyncio.all_tasks() if task is not asyncio.current_task())
    await asyncio.get_running_loop().shutdown_default_executor()
    # Closed sockets are let go of in the loop's next turn.
    await asyncio.sleep(0)
