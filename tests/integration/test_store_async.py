"""The store client of a loop: settings looked at again, and a store that a person accepted under many calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from ledger.acceptance import accept_store
from ledger.admission import Admitted, admit_delivery
from ledger.config import RedisConfig
from ledger.errors import StoreUnavailable, StoreUnsafe, StoreWentBack
from ledger.store import AsyncStore, ScriptCall, StoreSettings, lane
from tests.support.ledger import LIMITS, SHARDS, delivery
from tests.support.proxy import TcpProxy
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until_async


def admission(number: int) -> ScriptCall[Admitted]:
    """A delivery to a session of its own."""
    return admit_delivery(delivery(session=f"s{number}"), LIMITS, SHARDS)


def settings(url: str) -> StoreSettings:
    """Short waits."""
    return StoreSettings(RedisConfig(url=url, shards=SHARDS), wait_seconds=1.0)


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[AsyncStore]:
    """A client of this loop."""
    store = AsyncStore(settings(url))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.mark.proves("C-21", "C-26")
def test_settings_that_change_under_a_running_process_stop_it_until_they_are_right(
    valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "RECHECK_SECONDS", -1.0)

    async def scene() -> None:
        client = valkey.client()
        async with opened(valkey.url) as store:
            client.config_set("appendfsync", "no")
            # Every lane, however often it is asked, and nobody is told that anything was done.
            for _ in range(3):
                answers = await asyncio.gather(*(store.run(admission(n)) for n in range(80)), return_exceptions=True)
                assert {type(answer) for answer in answers} == {StoreUnsafe}
            assert client.keys("ml:*:run:*") == []
            client.config_set("appendfsync", "always")
            assert (await store.run(admission(1))).how == "new"

    asyncio.run(scene())


@pytest.mark.proves("C-27")
def test_a_store_accepted_under_many_calls_is_followed_by_all(valkey: ValkeyProcess) -> None:
    async def scene() -> None:
        async with opened(valkey.url) as store:
            await asyncio.gather(*(store.run(admission(number)) for number in range(50)))
            valkey.client().flushall()
            answers = await asyncio.gather(*(store.run(admission(n)) for n in range(50)), return_exceptions=True)
            assert {type(answer) for answer in answers} == {StoreWentBack}
            await asyncio.to_thread(accept_store, settings(valkey.url))
            admitted = await asyncio.gather(*(store.run(admission(number)) for number in range(200)))
            assert {one.how for one in admitted} == {"new"}
            # What was confirmed is held against the accepted store from now on: an older copy of it is refused.
            valkey.client().hset("ml:{00}:seq", "n", 1)
            with pytest.raises(StoreWentBack):
                await store.run(admission(1))

    asyncio.run(scene())


@pytest.mark.proves("C-22", "C-26")
def test_calls_in_a_black_hole_end_in_time_and_their_repeats_change_nothing(valkey: ValkeyProcess) -> None:
    async def scene(proxy: TcpProxy) -> None:
        async with opened(proxy.url) as store:
            calls = [admission(number) for number in range(40)]
            # Half of them have been run before, so their repeats may not run again.
            await asyncio.gather(*(store.run(call) for call in calls[:20]))
            with proxy.black_hole():
                asking = [asyncio.ensure_future(store.run(call)) for call in calls]
                await wait_until_async(lambda: all(one.done() for one in asking), 20, "every call to be answered")
            assert all(isinstance(one.exception(), StoreUnavailable) for one in asking)
            repeated = await asyncio.gather(*(store.run(call) for call in calls))
            assert len({one.run.run_id for one in repeated}) == 40
            assert len(valkey.client().keys("ml:*:run:*:journal")) == 40

    with TcpProxy(valkey.port) as proxy:
        asyncio.run(scene(proxy))
