"""Waiting under a deadline: nothing is lost when two things happen in one tick of the loop."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.tool_calls import call_context
from workers.tools.results import MCPExecutionTimeout
from workers.tools.waiting import CallCancelled, acquire, within


def test_a_slot_that_comes_as_the_caller_is_cancelled_is_given_back() -> None:
    async def main() -> None:
        slots = asyncio.Semaphore(1)
        await slots.acquire()
        waiting = asyncio.create_task(acquire(slots, call_context()))
        while not slots._waiters:
            await asyncio.sleep(0)
        slots.release()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.wait_for(slots.acquire(), 1)

    asyncio.run(main())


@pytest.mark.proves("C-54")
def test_a_slot_is_not_waited_for_past_the_deadline_nor_lost() -> None:
    async def main() -> None:
        slots = asyncio.Semaphore(1)
        await slots.acquire()
        with pytest.raises(MCPExecutionTimeout) as timeout:
            await acquire(slots, call_context(0.05))
        assert timeout.value.dispatched is False
        slots.release()
        await asyncio.wait_for(slots.acquire(), 1)

    asyncio.run(main())


@pytest.mark.proves("C-55")
def test_what_is_waited_for_is_given_up_with_the_call() -> None:
    async def main() -> None:
        cancel, given_up = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                given_up.set()

        asyncio.get_running_loop().call_later(0.02, cancel.set)
        with pytest.raises(CallCancelled):
            await within(work(), call_context(cancel=cancel))
        await asyncio.wait_for(given_up.wait(), 1)

    asyncio.run(main())
