"""A server met anew is asked for what this process knows, before anything else; one gap stops every shard (C-27)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from ledger.acceptance import accept_store, read_state
from ledger.admission import Admitted, admit_delivery
from ledger.config import RedisConfig
from ledger.errors import StoreWentBack
from ledger.store import AsyncStore, ScriptCall, StoreSettings, SyncStore, aio
from ledger.store.wire import seq_key
from tests.support.ledger import LIMITS, delivery
from tests.support.valkey import ValkeyProcess

SHARDS = 16


def settings(valkey: ValkeyProcess) -> StoreSettings:
    """Sixteen shards."""
    return StoreSettings(RedisConfig(url=valkey.url, shards=SHARDS))


def admission(number: int) -> ScriptCall[Admitted]:
    """A delivery to a session of its own."""
    return admit_delivery(delivery(session=f"s{number}"), LIMITS, SHARDS)


def take_back(valkey: ValkeyProcess, shard: int) -> None:
    """Makes the store lack its last write in one shard."""
    valkey.client().hincrby(seq_key(shard), "n", -1)


@pytest.fixture
def store(valkey: ValkeyProcess) -> Iterator[SyncStore]:
    """A front door's client that has seen writes in several shards."""
    made = SyncStore(settings(valkey))
    for number in range(12):
        made.run(admission(number))
    yield made
    made.close()


@pytest.mark.proves("C-27")
def test_a_gap_in_one_shard_stops_every_shard(valkey: ValkeyProcess, store: SyncStore) -> None:
    gap, other = admission(0), next(admission(n) for n in range(12) if admission(n).shard != admission(0).shard)
    take_back(valkey, gap.shard)
    with pytest.raises(StoreWentBack):
        store.run(gap)
    assert read_state(settings(valkey)).refused == tuple(range(SHARDS))
    with pytest.raises(StoreWentBack):
        store.run(other)


@pytest.mark.proves("C-27")
def test_a_new_life_is_asked_for_every_shard_before_the_first_call(valkey: ValkeyProcess, store: SyncStore) -> None:
    gap, other = admission(0), next(admission(n) for n in range(12) if admission(n).shard != admission(0).shard)
    take_back(valkey, gap.shard)
    valkey.restart()
    with pytest.raises(StoreWentBack):
        store.run(other)
    assert len(read_state(settings(valkey)).refused) == SHARDS


@pytest.mark.proves("C-27")
def test_a_quiet_process_notices_too(valkey: ValkeyProcess, store: SyncStore) -> None:
    store.keep_watch()
    valkey.restart()
    store.keep_watch()
    take_back(valkey, admission(0).shard)
    valkey.restart()
    with pytest.raises(StoreWentBack):
        store.keep_watch()


@pytest.mark.proves("C-27")
def test_after_acceptance_everything_goes_on(valkey: ValkeyProcess, store: SyncStore) -> None:
    take_back(valkey, admission(0).shard)
    valkey.restart()
    with pytest.raises(StoreWentBack):
        store.run(admission(1))
    accept_store(settings(valkey))
    assert [store.run(admission(number)).how for number in range(20, 40)] == ["new"] * 20
    # A second loss is noticed like the first.
    take_back(valkey, admission(20).shard)
    valkey.restart()
    with pytest.raises(StoreWentBack):
        store.run(admission(41))


@pytest.mark.proves("C-27")
def test_a_loop_does_the_same_and_knows_that_it_must_not_send(valkey: ValkeyProcess) -> None:
    async def main() -> None:
        store = AsyncStore(settings(valkey))
        await store.open()
        await asyncio.gather(*(store.run(admission(number)) for number in range(12)))
        assert not store.went_back
        take_back(valkey, admission(0).shard)
        await asyncio.to_thread(valkey.restart)
        results = await asyncio.gather(*(store.run(admission(n)) for n in range(20, 30)), return_exceptions=True)
        results += await asyncio.gather(*(store.run(admission(n)) for n in range(20, 30)), return_exceptions=True)
        assert all(isinstance(one, Exception) for one in results)
        assert any(isinstance(one, StoreWentBack) for one in results)
        assert store.went_back
        await asyncio.to_thread(accept_store, settings(valkey))
        assert (await store.run(admission(31))).how == "new"
        assert not store.went_back
        await store.close()

    asyncio.run(main())


@pytest.mark.proves("C-27")
def test_a_loop_trusts_a_new_life_only_after_a_while(valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio, "TRUST_SECONDS", 0.6)

    async def waited(store: AsyncStore) -> float:
        began = time.monotonic()
        await store.trusted()
        return time.monotonic() - began

    async def main() -> None:
        store = AsyncStore(settings(valkey), lanes=1)
        await store.open()
        await store.run(admission(1))
        assert await waited(store) < 0.3
        valkey.kill9()
        await asyncio.gather(store.run(admission(2)), return_exceptions=True)
        await asyncio.to_thread(valkey.restart)
        assert (await store.run(admission(3))).how == "new"
        assert 0.2 < await waited(store) < 5
        assert await waited(store) < 0.2
        await store.close()

    asyncio.run(main())


def _two_shards() -> tuple[ScriptCall[Admitted], ScriptCall[Admitted]]:
    """Calls to the first and to the last shard that deliveries are made to here, in the order of acceptance."""
    ordered = sorted((admission(number) for number in range(20, 60)), key=lambda call: call.shard)
    return ordered[0], ordered[-1]


@pytest.mark.proves("C-27")
def test_what_was_accepted_is_not_refused_for_what_was_not_yet(valkey: ValkeyProcess, store: SyncStore) -> None:
    accepted, not_yet = _two_shards()
    other = SyncStore(settings(valkey))
    other.open()
    take_back(valkey, admission(0).shard)
    with pytest.raises(StoreWentBack):
        store.run(admission(0))

    def in_the_middle(shard: int) -> None:
        if shard == accepted.shard:
            # It hears of the loss only now, and of the acceptance before.
            assert other.run(accepted).how == "new"
            with pytest.raises(StoreWentBack):
                other.run(not_yet)

    accept_store(settings(valkey), each=in_the_middle)
    assert read_state(settings(valkey)).refused == ()
    assert other.run(not_yet).how == "new"
    other.close()


@pytest.mark.proves("C-27")
def test_a_loop_does_not_refuse_it_either(valkey: ValkeyProcess, store: SyncStore) -> None:
    accepted, not_yet = _two_shards()

    async def main() -> None:
        other = AsyncStore(settings(valkey))
        await other.open()
        take_back(valkey, admission(0).shard)
        with pytest.raises(StoreWentBack):
            store.run(admission(0))
        loop = asyncio.get_running_loop()

        async def in_the_middle() -> None:
            assert (await other.run(accepted)).how == "new"
            with pytest.raises(StoreWentBack):
                await other.run(not_yet)

        def after(shard: int) -> None:
            if shard == accepted.shard:
                asyncio.run_coroutine_threadsafe(in_the_middle(), loop).result(20)

        await asyncio.to_thread(accept_store, settings(valkey), each=after)
        assert read_state(settings(valkey)).refused == ()
        assert (await other.run(not_yet)).how == "new"
        assert not other.went_back
        await other.close()

    asyncio.run(main())
