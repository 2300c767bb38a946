"""The engine's loop in a thread of its own: work from other loops goes there and its result comes back."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from ledger.engine.background import BackgroundLoop
from tests.support.wait import wait_until

WHO: ContextVar[str] = ContextVar("who", default="nobody")


@pytest.fixture
def background() -> Iterator[BackgroundLoop]:
    made = BackgroundLoop("test-loop")
    yield made
    made.close()


async def _name() -> str:
    return threading.current_thread().name


async def _who() -> str:
    await asyncio.sleep(0)
    return WHO.get()


async def _fail() -> None:
    raise KeyError("a word")


async def _for_ever(began: threading.Event, ended: threading.Event) -> None:
    try:
        began.set()
        await asyncio.Event().wait()
    finally:
        ended.set()


def test_many_callers_of_many_loops_get_their_own_results(background: BackgroundLoop) -> None:
    async def echo(value: int) -> int:
        await asyncio.sleep(0)
        return value

    async def caller(base: int) -> list[int]:
        return list(await asyncio.gather(*(background.submit(echo(base + n)) for n in range(100))))

    found: dict[int, list[int]] = {}
    threads = [
        threading.Thread(target=lambda b=b: found.update({b: asyncio.run(caller(b))})) for b in range(0, 800, 100)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == {base: list(range(base, base + 100)) for base in range(0, 800, 100)}


def test_work_runs_in_the_loop_s_thread_and_in_its_caller_s_context(background: BackgroundLoop) -> None:
    async def caller(who: str) -> str:
        WHO.set(who)
        return await background.submit(_who())

    async def both() -> tuple[str, list[str]]:
        return await background.submit(_name()), list(await asyncio.gather(caller("one"), caller("other")))

    assert asyncio.run(both()) == ("test-loop", ["one", "other"])


def test_what_the_work_raises_is_raised_where_it_is_awaited(background: BackgroundLoop) -> None:
    async def caller() -> None:
        await background.submit(_fail())

    with pytest.raises(KeyError, match="a word"):
        asyncio.run(caller())


def test_a_caller_that_is_cancelled_cancels_the_work(background: BackgroundLoop) -> None:
    began, ended = threading.Event(), threading.Event()

    async def caller() -> None:
        work = asyncio.ensure_future(background.submit(_for_ever(began, ended)))
        await asyncio.to_thread(began.wait, 10)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(caller())
    assert ended.wait(10)


def test_work_cancelled_before_it_began_never_does(background: BackgroundLoop) -> None:
    began, ended = threading.Event(), threading.Event()

    async def caller() -> str:
        background.submit(_for_ever(began, ended)).cancel()
        await asyncio.sleep(0)
        return await background.submit(_name())

    assert asyncio.run(caller()) == "test-loop"
    assert not began.is_set()


def test_a_caller_whose_loop_ended_disturbs_nobody(background: BackgroundLoop) -> None:
    began, go = threading.Event(), threading.Event()

    async def slow() -> None:
        began.set()
        await asyncio.to_thread(go.wait, 10)

    loop = asyncio.new_event_loop()

    async def ask() -> None:
        background.submit(slow())

    loop.run_until_complete(ask())
    assert began.wait(10)
    loop.close()
    go.set()

    async def another() -> str:
        return await background.submit(_name())

    assert asyncio.run(another()) == "test-loop"


def test_a_caller_s_loop_does_not_live_on(background: BackgroundLoop) -> None:
    async def dawdle() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)

    async def caller() -> weakref.ref[asyncio.AbstractEventLoop]:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(background.submit(dawdle()), 0.01)
        return weakref.ref(asyncio.get_running_loop())

    loops = [asyncio.run(caller()) for _ in range(5)]

    def gone() -> bool:
        gc.collect()
        return [loop for loop in loops if loop() is not None] == []

    wait_until(gone, 10, "the loops to be let go of")


def test_what_runs_when_the_loop_is_closed_ends_for_its_callers() -> None:
    background = BackgroundLoop("test-loop")
    began, ended = threading.Event(), threading.Event()

    async def caller() -> None:
        work = asyncio.ensure_future(background.submit(_for_ever(began, ended)))
        await asyncio.to_thread(began.wait, 10)
        await asyncio.to_thread(background.close)
        async with asyncio.timeout(10):
            with pytest.raises(asyncio.CancelledError):
                await work

    asyncio.run(caller())
    assert ended.is_set()


def test_a_closed_loop_takes_nothing() -> None:
    background = BackgroundLoop("test-loop")
    background.close()

    async def caller() -> None:
        with pytest.raises(RuntimeError):
            await background.submit(_name())
        with pytest.raises(RuntimeError):
            await background.submit(_name())

    asyncio.run(caller())
