"""The store client of an event loop: batches over several connections, each confirmed on its own (C-20 to C-22)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from ledger.admission import Admitted, admit_delivery
from ledger.config import RedisConfig
from ledger.errors import Refused, StoreUnavailable, StoreUnsafe, Unconfirmed
from ledger.runs import read_run
from ledger.store import AsyncStore, ScriptCall, StoreSettings
from tests.support.ledger import LIMITS, SHARDS, TENANT, delivery
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until, wait_until_async


def admission(number: int) -> ScriptCall[Admitted]:
    """A delivery to a session of its own."""
    return admit_delivery(delivery(session=f"s{number}"), LIMITS, SHARDS)


@asynccontextmanager
async def opened(url: str, *, lanes: int = 4, wait_seconds: float = 5.0) -> AsyncIterator[AsyncStore]:
    """A client of one loop."""
    store = AsyncStore(StoreSettings(RedisConfig(url=url, shards=SHARDS), wait_seconds=wait_seconds), lanes=lanes)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def calls_of(server: ValkeyProcess, command: str) -> int:
    """How often the server ran a command."""
    stats: dict[str, Any] = server.client().info("commandstats")
    found = stats.get(f"cmdstat_{command}", {"calls": 0})
    return int(found["calls"])


def clients(server: ValkeyProcess) -> int:
    """Connections of ledger clients."""
    return sum(row["name"] == "mutation-ledger" for row in server.client().client_list())


@pytest.mark.proves("C-20")
def test_many_calls_at_once_share_few_confirmations(valkey: ValkeyProcess) -> None:
    async def main() -> None:
        async with opened(valkey.url) as store:
            before = calls_of(valkey, "waitaof")
            admitted = await asyncio.gather(*(store.run(admission(n)) for n in range(200)))
            assert len({one.run.run_id for one in admitted}) == 200
            assert 1 <= calls_of(valkey, "waitaof") - before <= 20
            assert clients(valkey) == 4

    asyncio.run(main())


@pytest.mark.proves("C-20")
def test_every_call_alone_is_confirmed(valkey: ValkeyProcess) -> None:
    async def main() -> None:
        async with opened(valkey.url) as store:
            before = calls_of(valkey, "waitaof")
            for n in range(5):
                await store.run(admission(n))
            assert calls_of(valkey, "waitaof") - before == 5

    asyncio.run(main())


@pytest.mark.proves("C-20")
def test_an_unconfirmed_write_is_never_told_as_done(valkey: ValkeyProcess) -> None:
    """With a replica asked for that does not exist, WAITAOF answers small numbers, not an error."""

    async def main() -> None:
        async with opened(valkey.url, wait_seconds=0.2) as store:
            asked = store.settings.redis.model_copy(update={"aof_replicas": 1})
            store.settings = replace(store.settings, redis=asked)
            with pytest.raises(Unconfirmed):
                await store.run(admission(1))

    asyncio.run(main())


@pytest.mark.proves("C-22")
def test_a_refusal_concerns_its_own_call_only(valkey: ValkeyProcess) -> None:
    async def main() -> None:
        async with opened(valkey.url, lanes=1) as store:
            await store.run(admission(1))
            other = admit_delivery(delivery(session="s1", content={"calls": []}), LIMITS, SHARDS)
            refused, fine = await asyncio.gather(store.run(other), store.run(admission(2)), return_exceptions=True)
            assert isinstance(refused, Refused)
            assert refused.code == "delivery_mismatch"
            assert isinstance(fine, Admitted)

    asyncio.run(main())


def test_a_server_that_lost_its_scripts_gets_them_again(valkey: ValkeyProcess) -> None:
    async def main() -> None:
        async with opened(valkey.url) as store:
            await store.run(admission(1))
            valkey.client().script_flush()
            admitted = await asyncio.gather(*(store.run(admission(n)) for n in range(2, 60)))
            assert all(one.how == "new" for one in admitted)

    asyncio.run(main())


@pytest.mark.proves("C-22")
def test_a_cut_connection_fails_its_batch_and_the_next_call_connects_anew(valkey: ValkeyProcess) -> None:
    async def main() -> None:
        async with opened(valkey.url, lanes=2, wait_seconds=1.0) as store:
            call = admission(1)
            await store.run(call)
            valkey.kill9()
            with pytest.raises(StoreUnavailable):
                await store.run(admission(2))
            valkey.restart()
            again = await store.run(call)
            assert again.how == "new"
            reply = await store.run(read_run(0, again.run.run_id, TENANT))
            assert reply.run is not None

    asyncio.run(main())


@pytest.mark.proves("C-21")
def test_a_server_met_anew_with_other_settings_gets_nothing(valkey: ValkeyProcess) -> None:
    async def main() -> None:
        async with opened(valkey.url) as store:
            await store.run(admission(1))
            valkey.settings["appendfsync"] = "everysec"
            valkey.restart()
            before = calls_of(valkey, "evalsha")
            with pytest.raises((StoreUnsafe, StoreUnavailable)):
                await store.run(admission(2))
            with pytest.raises(StoreUnsafe):
                await store.run(admission(2))
            results = await asyncio.gather(*(store.run(admission(n)) for n in range(40)), return_exceptions=True)
            assert all(isinstance(one, StoreUnsafe) for one in results)
            assert calls_of(valkey, "evalsha") == before

    asyncio.run(main())


def test_a_cancelled_caller_takes_nobody_with_it(valkey: ValkeyProcess) -> None:
    async def main() -> None:
        async with opened(valkey.url, lanes=1) as store:
            tasks = [asyncio.create_task(store.run(admission(n))) for n in range(20)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(one, Admitted) for one in results[1::2])
            assert all(isinstance(one, asyncio.CancelledError) for one in results[::2])

    asyncio.run(main())


def test_closing_answers_whoever_waits(valkey: ValkeyProcess) -> None:
    async def main() -> None:
        async with opened(valkey.url, lanes=1) as store:
            await store.run(admission(1))
            valkey.client().client_pause(60_000, all=False)
            tasks = [asyncio.create_task(store.run(admission(n))) for n in range(2, 5)]
            await asyncio.sleep(0)
            late = asyncio.create_task(store.run(admission(9)))
            await wait_until_async(lambda: store.queued == 1, 5, "the first batch to be sent")
            await store.close()
            valkey.client().client_unpause()
            results = await asyncio.gather(*tasks, late, return_exceptions=True)
            assert all(isinstance(one, StoreUnavailable) for one in results)
            with pytest.raises(StoreUnavailable):
                await store.run(admission(10))

    asyncio.run(main())
    wait_until(lambda: clients(valkey) == 0, 5, "the connections to be closed")
