"""Ending tasks that forget a cancellation."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ledger.tasks import end_tasks


def test_a_task_that_forgets_once_is_cancelled_again() -> None:
    async def forgetful(times: int) -> None:
        for _ in range(times):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
        await asyncio.sleep(3600)

    async def main() -> list[bool]:
        tasks = [asyncio.create_task(forgetful(times)) for times in (0, 1, 2)]
        await asyncio.sleep(0)
        await end_tasks(tasks)
        await end_tasks([])
        return [task.cancelled() for task in tasks]

    assert asyncio.run(asyncio.wait_for(main(), 10)) == [True, True, True]
