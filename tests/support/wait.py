"""Waiting on a condition with a named timeout; the only place where tests sleep."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
STEP_SECONDS = 0.005
PATIENCE_VARIABLE = "MUTATION_LEDGER_TESTS_PATIENCE"
PATIENCE = float(os.environ.get(PATIENCE_VARIABLE, "1"))
"""How many times longer waits may take: where several stacks share a few cores, they only bound what hangs."""


def wait_until(predicate: Callable[[], T], timeout: float, what: str) -> T:
    """The first true value of `predicate`, asked again until `timeout` seconds are over.

    Fails with `what` in the message. Exceptions of the predicate end the wait.
    """
    timeout *= PATIENCE
    end = time.monotonic() + timeout
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() >= end:
            raise AssertionError(f"waited {timeout:g} s for {what}")
        time.sleep(STEP_SECONDS)


def passed(seconds: float) -> Callable[[], bool]:
    """A predicate that is true once so many seconds have gone by from now."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


async def wait_until_async(predicate: Callable[[], T | Awaitable[T]], timeout: float, what: str) -> T:
    """`wait_until` for a running loop; the predicate may be a function or a coroutine function."""
    timeout *= PATIENCE
    end = time.monotonic() + timeout
    while True:
        found = predicate()
        value: T = await found if inspect.isawaitable(found) else found
        if value:
            return value
        if time.monotonic() >= end:
            raise AssertionError(f"waited {timeout:g} s for {what}")
        await asyncio.sleep(STEP_SECONDS)
