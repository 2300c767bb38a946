"""Following outcomes on a real Valkey: order, cursors, waiting, and a store that goes away."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.consumer import CallableCursorStore, Cursors, FileCursorStore, Outcome, OutcomeConsumer, Start, links
from ledger.consumer.keys import outcomes_key
from ledger.embedded import EmbeddedStore
from ledger.errors import StoreError, StoreUnavailable
from tests.support.publishing import SHARDS, Key, Publisher, published
from tests.support.valkey import ValkeyProcess, free_port
from tests.support.wait import wait_until


class Kept:
    """Cursors in memory, and every save that was made."""

    def __init__(self) -> None:
        self.saves: list[str] = []
        self.store = CallableCursorStore(lambda: self.saves[-1] if self.saves else None, self.saves.append)


@pytest.fixture
def publisher(store_url: str) -> Iterator[Publisher]:
    """A front door and worker on the emptied store."""
    made = Publisher(store_url)
    yield made
    made.close()


def key(outcome: Outcome) -> Key:
    return outcome.logical_turn_id, outcome.mutation_id, outcome.mutation_revision


def by_turn(keys: list[Key]) -> dict[str, list[int]]:
    turns: dict[str, list[int]] = {}
    for turn, _, revision in keys:
        turns.setdefault(turn, []).append(revision)
    return turns


@pytest.mark.proves("C-111")
def test_every_shard_is_read_in_revision_order_per_turn(
    store_url: str, publisher: Publisher, valkey_session: ValkeyProcess
) -> None:
    for shard in range(SHARDS):
        publisher.publish(shard, calls=4)
    wanted = list(published(valkey_session.client()))
    with OutcomeConsumer(store_url, Kept().store, count=3) as consumer:
        found = list(consumer.outcomes(once=True))
    assert sorted(map(key, found)) == sorted(wanted)
    assert {outcome.shard for outcome in found} == set(range(SHARDS))
    assert by_turn(list(map(key, found))) == by_turn(wanted)
    assert all(outcome.record["status"] == "completed" and outcome.tenant == "acme" for outcome in found)


def test_async_and_sync_iteration_read_the_same(store_url: str, publisher: Publisher) -> None:
    for shard in range(SHARDS):
        publisher.publish(shard, calls=2)
    kept = Kept()
    with OutcomeConsumer(store_url, Kept().store) as consumer:
        expected = list(consumer.outcomes(once=True))
    assert len(expected) == 2 * SHARDS

    async def read() -> None:
        async with OutcomeConsumer(store_url, kept.store) as consumer:
            assert [outcome async for outcome in consumer.outcomes(once=True)] == expected
            assert [outcome async for outcome in consumer.outcomes(once=True)] == []
        await asyncio.to_thread(publisher.publish, 3)
        async with OutcomeConsumer(store_url, kept.store) as consumer:
            assert [outcome.shard async for batch in consumer.batches(once=True) for outcome in batch] == [3]

    asyncio.run(read())


def test_a_cursor_moves_only_past_what_was_processed(store_url: str, publisher: Publisher) -> None:
    for shard in range(4):
        publisher.publish(shard, calls=3)
    kept = Kept()
    seen: list[Key] = []
    with OutcomeConsumer(store_url, kept.store, count=2) as consumer:
        for outcome in consumer:
            if len(seen) == 9:
                break  # this one was handed out and never processed
            seen.append(key(outcome))
    with OutcomeConsumer(store_url, kept.store) as consumer:
        again = [key(outcome) for outcome in consumer.outcomes(once=True)]
    assert set(seen) | set(again) == set(seen + again)
    assert len(set(seen + again)) == 12
    assert key(outcome) in again


def test_an_error_of_the_caller_loses_nothing(store_url: str, publisher: Publisher) -> None:
    publisher.publish(5, calls=3)
    handled: list[Key] = []
    with OutcomeConsumer(store_url, Kept().store) as consumer:

        def process() -> None:
            for outcome in consumer:
                if handled:
                    raise RuntimeError("caller")
                handled.append(key(outcome))

        with pytest.raises(RuntimeError, match="caller"):
            process()
        assert [key(outcome)[2] for outcome in consumer.outcomes(once=True)] == [4, 6]


def test_commit_saves_the_outcome_at_hand(store_url: str, publisher: Publisher) -> None:
    publisher.publish(5, calls=3)
    kept = Kept()
    with OutcomeConsumer(store_url, kept.store) as consumer:
        for outcome in consumer:
            if outcome.mutation_revision == 4:
                consumer.commit()
                break
        assert Cursors.from_json(kept.saves[-1]).positions[5] == outcome.stream_id
    with OutcomeConsumer(store_url, kept.store) as consumer:
        assert [outcome.mutation_revision for outcome in consumer.outcomes(once=True)] == [6]


def test_commit_forgets_what_an_earlier_iteration_only_handed_out(store_url: str, publisher: Publisher) -> None:
    publisher.publish(1)
    publisher.publish(2)
    kept = Kept()
    with OutcomeConsumer(store_url, kept.store) as consumer:
        for outcome in consumer:
            if outcome.shard == 2:
                break
        publisher.publish(1)
        assert next(iter(consumer)).shard == 1
        consumer.commit()
    with OutcomeConsumer(store_url, kept.store) as consumer:
        assert [outcome.shard for outcome in consumer.outcomes(once=True)] == [2]


def test_a_cursor_is_saved_after_its_batch_and_not_before(store_url: str, publisher: Publisher) -> None:
    publisher.publish(5, calls=3)
    kept = Kept()
    before = "0-0"
    with OutcomeConsumer(store_url, kept.store, count=1) as consumer:
        for batch in consumer.batches(once=True):
            saved = Cursors.from_json(kept.saves[-1]).positions[5] if kept.saves else "0-0"
            assert saved == before
            before = str(batch[-1].stream_id)
    assert Cursors.from_json(kept.saves[-1]).positions[5] == before
    assert len(set(kept.saves)) == len(kept.saves), "unchanged cursors were saved again"


def test_other_tenants_are_passed_over_and_the_cursor_with_them(store_url: str, publisher: Publisher) -> None:
    publisher.publish(1, tenant="acme")
    publisher.publish(1, tenant="other")
    kept = Kept()
    with OutcomeConsumer(store_url, kept.store, tenant="acme") as consumer:
        assert [outcome.tenant for outcome in consumer.outcomes(once=True)] == ["acme"]
        publisher.publish(2, tenant="other")
        assert list(consumer.outcomes(once=True)) == []
    with OutcomeConsumer(store_url, kept.store) as everybody:
        assert list(everybody.outcomes(once=True)) == [], "the cursor stopped before the other tenant's outcome"


def test_a_consumer_may_begin_with_what_is_published_from_now_on(store_url: str, publisher: Publisher) -> None:
    publisher.publish(1)
    kept = Kept()
    with OutcomeConsumer(store_url, kept.store, start=Start.NOW) as consumer:
        assert list(consumer.outcomes(once=True)) == []
        publisher.publish(2)
        assert [outcome.shard for outcome in consumer.outcomes(once=True)] == [2]


def test_waiting_ends_with_the_next_outcome(store_url: str, publisher: Publisher) -> None:
    """Long before the block does: one blocking XREAD watches all shards."""
    found: list[Outcome] = []
    consumer = OutcomeConsumer(store_url, Kept().store, block_seconds=60)

    def follow() -> None:
        for outcome in consumer:
            found.append(outcome)
            if len(found) == 3:
                return

    thread = threading.Thread(target=follow)
    thread.start()
    for shard in (15, 0, 7):
        before = len(found)
        publisher.publish(shard)
        wait_until(lambda before=before: len(found) > before, 5, "the outcome to be handed out")  # type: ignore[misc]
    thread.join(5)
    assert [outcome.shard for outcome in found] == [15, 0, 7]
    consumer.close()


def test_waiting_outlasts_quiet_times(store_url: str, publisher: Publisher) -> None:
    with OutcomeConsumer(store_url, Kept().store, block_seconds=0.05) as consumer:
        timer = threading.Timer(0.4, publisher.publish, [3])
        timer.start()
        assert next(iter(consumer)).shard == 3
        timer.join()


def test_a_cancelled_wait_leaves_the_consumer_usable(store_url: str, publisher: Publisher) -> None:
    async def read() -> None:
        async with OutcomeConsumer(store_url, Kept().store, block_seconds=60) as consumer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await anext(aiter(consumer))
            await asyncio.to_thread(publisher.publish, 6)
            async with asyncio.timeout(5):
                assert (await anext(aiter(consumer))).shard == 6

    asyncio.run(read())


@pytest.mark.proves("C-111")
def test_a_store_that_dies_and_comes_back_costs_nothing(valkey: ValkeyProcess) -> None:
    publisher = Publisher(valkey.url)
    publisher.publish(1, calls=2)
    with OutcomeConsumer(valkey.url, Kept().store, block_seconds=0.2) as consumer:
        assert len(list(consumer.outcomes(once=True))) == 2
        valkey.kill9()
        with pytest.raises(StoreUnavailable):
            next(iter(consumer))
        valkey.restart()
        Publisher(valkey.url).publish(1)
        assert len(list(consumer.outcomes(once=True))) == 1
    publisher.close()


def test_a_store_that_hangs_is_noticed(valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MARGIN_SECONDS", 0.2)
    publisher = Publisher(valkey.url)
    publisher.publish(1)
    with OutcomeConsumer(valkey.url, Kept().store, block_seconds=0.1) as consumer:
        assert len(list(consumer.outcomes(once=True))) == 1
        os.kill(valkey.pid, signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnavailable):
                next(iter(consumer))
        finally:
            os.kill(valkey.pid, signal.SIGCONT)
        publisher.publish(1)
        assert len(list(consumer.outcomes(once=True))) == 1
    publisher.close()


def test_a_store_that_no_service_ever_opened_says_so(store_url: str, tmp_path: Path) -> None:
    with (
        OutcomeConsumer(store_url, FileCursorStore(tmp_path / "c")) as consumer,
        pytest.raises(StoreError, match="start the service first") as caught,
    ):
        next(iter(consumer))
    assert caught.value.code == "store_empty"
    assert not (tmp_path / "c").exists()


def test_the_embedded_store_is_read_through_its_socket(tmp_path: Path) -> None:
    async def read(url: str) -> list[int]:
        async with OutcomeConsumer(url, Kept().store) as consumer:
            return [outcome.shard async for outcome in consumer.outcomes(once=True)]

    with EmbeddedStore(tmp_path) as store:
        assert store.url.startswith("unix://")
        publisher = Publisher(store.url)
        publisher.publish(6)
        with OutcomeConsumer(store.url, Kept().store) as consumer:
            assert [outcome.shard for outcome in consumer.outcomes(once=True)] == [6]
        assert asyncio.run(read(store.url)) == [6]
        publisher.close()


@pytest.mark.proves("C-111")
def test_a_cluster_is_read_shard_by_shard(tmp_path: Path) -> None:
    server = ValkeyProcess(tmp_path / "cluster", settings={"cluster-enabled": "yes", "cluster-port": str(free_port())})
    server.start()
    try:
        client: Any = server.client()
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok", 5, "all slots to be served")
        publisher = Publisher(server.url)
        with pytest.raises(Exception, match=r"CROSSSLOT|same slot"):
            client.xread({outcomes_key(0): "0-0", outcomes_key(1): "0-0"})
        for shard in range(SHARDS):
            publisher.publish(shard)
        kept = Kept()
        with OutcomeConsumer(server.url, kept.store) as consumer:
            assert {outcome.shard for outcome in consumer.outcomes(once=True)} == set(range(SHARDS))
            assert len(list(consumer.resync())) == SHARDS
            publisher.publish(9)
            assert next(iter(consumer)).shard == 9
        publisher.close()
    finally:
        server.stop()
