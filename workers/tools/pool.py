"""Threads for blocking handlers; unlike those of `concurrent.futures`, none holds up the process's end."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class DaemonPool:
    """At most `size` threads, made when needed. `slots` bounds the work, so that none waits in a queue."""

    def __init__(self, size: int, name: str) -> None:
        self.slots = asyncio.Semaphore(size)
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0

    def submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run `work`, which must not raise, at once. The caller holds a slot; its end frees it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def done(result: T) -> None:
            self._busy -= 1
            self.slots.release()
            if not future.done():
                future.set_result(result)

        def run() -> None:
            result = context.run(work)
            with contextlib.suppress(RuntimeError):  # the loop may be closed by now
                loop.call_soon_threadsafe(done, result)

        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            threading.Thread(target=self._serve, name=f"{self._name}-{self._threads}", daemon=True).start()
        self._work.put(run)
        return future

    def close(self) -> None:
        """Let idle threads end; a busy one ends after its work."""
        for _ in range(self._threads):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
