"""The stores on a cluster of three masters: every call on the server of its shard, moved shards found again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ledger.acceptance import accept_store, read_state
from ledger.admission import Admitted, admit_delivery
from ledger.config import RedisConfig
from ledger.runs import read_run
from ledger.store import AsyncStore, ScriptCall, StoreSettings, SyncStore
from ledger.store.dialing import place
from ledger.store.placement import Placement
from ledger.store.wire import seq_key
from tests.support.cluster import ValkeyCluster
from tests.support.ledger import LIMITS, TENANT, delivery

SHARDS = 16


@pytest.fixture(scope="module")
def cluster_of_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyCluster]:
    """Three masters for all tests here."""
    with ValkeyCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(cluster_of_three: ValkeyCluster) -> ValkeyCluster:
    """Emptied."""
    for server in cluster_of_three.servers:
        server.client().flushall()
    return cluster_of_three


def settings(cluster: ValkeyCluster) -> StoreSettings:
    """How the ledger reaches it."""
    return StoreSettings(RedisConfig(url=cluster.url, shards=SHARDS))


def admission(number: int) -> ScriptCall[Admitted]:
    """A delivery to a session of its own."""
    return admit_delivery(delivery(session=f"s{number}"), LIMITS, SHARDS)


def test_threads_reach_every_shard_on_its_own_server(cluster: ValkeyCluster) -> None:
    store = SyncStore(settings(cluster))
    store.open()
    admitted = [store.run(admission(number)) for number in range(60)]
    assert {call.shard for call in map(admission, range(100))} == set(range(SHARDS))
    for number, one in enumerate(admitted):
        found = store.run(read_run(admission(number).shard, one.run.run_id, TENANT)).run
        assert found is not None
    assert len(place(settings(cluster)).shards_by_node(SHARDS)) == 3
    for shard in range(SHARDS):
        assert cluster.owner(seq_key(shard)).client().exists(seq_key(shard))
    assert store.recheck().verdict == "verified"
    store.close()


def test_a_loop_reaches_every_shard_on_its_own_server(cluster: ValkeyCluster) -> None:
    async def main() -> None:
        store = AsyncStore(settings(cluster))
        await store.open()
        admitted = await asyncio.gather(*(store.run(admission(number)) for number in range(200)))
        assert all(one.how == "new" for one in admitted)
        again = await asyncio.gather(*(store.run(admission(number)) for number in range(200)))
        assert [one.run.run_id for one in again] == [one.run.run_id for one in admitted]
        await store.close()

    asyncio.run(main())


def turned(right: Placement) -> Placement:
    """Every range of slots at the wrong server."""
    others = (*right.ranges[1:], right.ranges[0])
    return Placement(tuple((a, b, node) for (a, b, _), (_, _, node) in zip(right.ranges, others, strict=True)))


@pytest.mark.proves("C-22")
def test_threads_find_a_shard_that_moved_and_its_write_happens_once(cluster: ValkeyCluster) -> None:
    store = SyncStore(settings(cluster))
    first = [store.run(admission(number)) for number in range(30)]
    for number in range(60):
        store._placement = turned(place(settings(cluster)))
        one = store.run(admission(number))
        assert one.how == ("attached" if number < 30 else "new")
        assert number >= 30 or one.run.run_id == first[number].run.run_id
    store.close()


@pytest.mark.proves("C-22")
def test_a_loop_finds_shards_that_moved_and_their_writes_happen_once(cluster: ValkeyCluster) -> None:
    async def main() -> None:
        store = AsyncStore(settings(cluster))
        await store.open()
        first = await asyncio.gather(*(store.run(admission(number)) for number in range(30)))
        wrong = turned(place(settings(cluster)))
        store._serving = [store._servers[wrong.of_shard(shard)] for shard in range(SHARDS)]
        again = await asyncio.gather(*(store.run(admission(number)) for number in range(60)))
        assert [one.how for one in again] == ["attached"] * 30 + ["new"] * 30
        assert [one.run.run_id for one in again[:30]] == [one.run.run_id for one in first]
        await store.close()

    asyncio.run(main())


@pytest.mark.proves("C-27")
def test_accepting_reaches_every_shard(cluster: ValkeyCluster) -> None:
    store = SyncStore(settings(cluster))
    store.run(admission(1))
    done: list[int] = []
    accepted = accept_store(settings(cluster), each=done.append)
    assert done == list(range(SHARDS))
    state = read_state(settings(cluster))
    assert (state.made, state.refused) == (True, ())
    assert store.run(admission(2)).how == "new"
    assert store.view.ids[admission(2).shard].decode() == accepted.store_id
    store.close()
