"""An event loop in a thread of its own, and the way there and back for callers of other threads and loops."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

import uvloop

from ledger.tasks import end_tasks

T = TypeVar("T")


class BackgroundLoop:
    """Runs coroutines for callers of any other thread. The thread does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._loop = uvloop.new_event_loop()
        self._inbox = _Inbox(self._loop, forgets=False)
        self._homes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Inbox] = WeakKeyDictionary()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """The result for an event loop of the caller: `await` it there. Cancelling it cancels the work.

        Raises RuntimeError once the loop was closed.
        """
        home = asyncio.get_running_loop()
        inbox = self._homes.get(home)
        if inbox is None:
            inbox = self._homes[home] = _Inbox(home, forgets=True)
        errand = _Errand(work, self._loop, home.create_future(), inbox)
        errand.result.add_done_callback(lambda result: self._forgo(errand) if result.cancelled() else None)
        try:
            self._inbox.put(errand.begin)
        except RuntimeError:
            work.close()
            raise
        return errand.result

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

    def _forgo(self, errand: _Errand) -> None:
        try:
            self._inbox.put(errand.cancel)
        except RuntimeError:  # the loop was closed, and what ran in it ended with it
            return

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            # What began while the loop was being wound up.
            self._loop.run_until_complete(_wind_up())
        finally:
            self._loop.close()
            self._inbox.empty()


class _Inbox:
    """What other threads ask a loop to do next. All that gathers before its next turn wakes it once, not once each."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, forgets: bool) -> None:
        """What waits for a loop that was closed is forgotten, or taken where that is noticed."""
        # A caller's loop must not live on because it was once called from.
        self._loop = ref(loop)
        self._waiting: deque[Callable[[], object]] = deque()
        self._roused = False
        self._lost = self._waiting.clear if forgets else self.empty

    def put(self, step: Callable[[], object]) -> None:
        """From any thread. Raises RuntimeError when the loop was closed."""
        self._waiting.append(step)
        # Set back before the queue is emptied: whoever sees it set left something that is still going to be taken.
        if self._roused:
            return
        self._roused = True
        loop = self._loop()
        try:
            _standing(loop).call_soon_threadsafe(self.empty)
        except RuntimeError:
            self._roused = False
            self._lost()
            raise

    def empty(self) -> None:
        """Takes every step that waits now; in the loop, or after its end."""
        self._roused = False
        # What comes meanwhile wakes the loop again, so that its other work has its turn.
        for _ in range(len(self._waiting)):
            self._waiting.popleft()()


def _standing(loop: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
    if loop is None:
        raise RuntimeError("the loop was closed and forgotten")
    return loop


class _Errand:
    """A coroutine on its way to the background loop, in its caller's context, and its result on the way back."""

    __slots__ = ("_context", "_home", "_loop", "_task", "_work", "result")

    def __init__(
        self,
        work: Coroutine[Any, Any, Any],
        loop: asyncio.AbstractEventLoop,
        result: asyncio.Future[Any],
        home: _Inbox,
    ) -> None:
        self._work = work
        self._loop = loop
        self._home = home
        self._context = copy_context()
        self._task: asyncio.Task[Any] | None = None
        self.result = result

    def begin(self) -> None:
        """In the background loop, or in its thread after the loop's end."""
        if self._loop.is_closed():
            self._work.close()
            self._back(self.result.cancel)
            return
        self._task = self._loop.create_task(self._work, context=self._context)
        self._task.add_done_callback(lambda _: self._back(self._deliver))

    def cancel(self) -> None:
        """The same; it comes after `begin`."""
        if self._task is not None and not self._loop.is_closed():
            self._task.cancel()

    def _back(self, step: Callable[[], object]) -> None:
        try:
            self._home.put(step)
        except RuntimeError:  # the caller's loop was closed: nobody waits
            if self._task is not None and not self._task.cancelled():
                self._task.exception()

    def _deliver(self) -> None:
        task, result = self._task, self.result
        if task is None:
            return
        if task.cancelled():
            result.cancel()
            return
        # Asked for also when nobody waits any more: asyncio complains of errors that nobody saw.
        error = task.exception()
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(task.result())


async def _wind_up() -> None:
    await end_tasks(task for task in asyncio.all_tasks() if task is not asyncio.current_task())
    await asyncio.get_running_loop().shutdown_default_executor()
    # Closed sockets are let go of in the loop's next turn.
    await asyncio.sleep(0)
