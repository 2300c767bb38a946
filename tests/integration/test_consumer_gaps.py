"""When a cursor cannot go on, and how history fills what may be missing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.acceptance import accept_store
from ledger.config import RedisConfig
from ledger.consumer import CursorGap, FileCursorStore, GapReason, Outcome, OutcomeConsumer
from ledger.consumer.keys import floor_key, outcomes_key
from ledger.erasure import sweep_retention
from ledger.errors import StoreUnavailable, StoreWentBack
from ledger.history import outcomes as history_of
from ledger.history import read_session
from ledger.reconciliation import reconcile_mutation
from ledger.states import MutationStatus
from ledger.store import StoreSettings
from tests.support.publishing import SHARDS, Publisher, session_in
from tests.support.valkey import ValkeyProcess

pytestmark = pytest.mark.proves("C-111")


@pytest.fixture
def publisher(store_url: str) -> Iterator[Publisher]:
    """A front door and worker on the emptied store."""
    made = Publisher(store_url)
    yield made
    made.close()


@pytest.fixture
def cursors(tmp_path: Path) -> FileCursorStore:
    """A cursor file."""
    return FileCursorStore(tmp_path / "cursor")


@pytest.fixture
def consumer(store_url: str, publisher: Publisher, cursors: FileCursorStore) -> Iterator[OutcomeConsumer]:
    """A consumer that has read three outcomes of shard 4 and two of shard 5."""
    publisher.publish(4, calls=3)
    publisher.publish(5, calls=2)
    with OutcomeConsumer(store_url, cursors) as made:
        assert len(read(made)) == 5
        yield made


def read(consumer: OutcomeConsumer) -> list[Outcome]:
    return list(consumer.outcomes(once=True))


def gap_of(consumer: OutcomeConsumer) -> CursorGap:
    with pytest.raises(CursorGap) as caught:
        read(consumer)
    return caught.value


def trim(publisher: Publisher, shard: int, keep: int) -> None:
    """The ledger's own sweep, with a small bound."""
    assert publisher.store.run(sweep_retention(shard, 1_000, keep, interval_ms=1)).trimmed > 0


def keys(outcomes: list[Outcome]) -> set[tuple[str, str, int, str]]:
    return {(o.logical_turn_id, o.mutation_id, o.mutation_revision, str(o.record["status"])) for o in outcomes}


def test_what_was_read_may_be_trimmed(consumer: OutcomeConsumer, publisher: Publisher) -> None:
    """The floor then is the cursor itself, or lies below it."""
    trim(publisher, 4, 1)
    publisher.publish(4)
    assert len(read(consumer)) == 1
    publisher.store.command([["DEL", outcomes_key(9)]])
    assert read(consumer) == []


def test_a_trim_past_the_cursor_is_a_gap(
    store_url: str, consumer: OutcomeConsumer, publisher: Publisher, cursors: FileCursorStore
) -> None:
    publisher.publish(4, calls=2)
    trim(publisher, 4, 1)
    gap = gap_of(consumer)
    assert (gap.reason, gap.shard) == (GapReason.TRIMMED, 4)
    assert gap_of(consumer).reason is GapReason.TRIMMED, "asking again made the gap go away"
    with OutcomeConsumer(store_url, cursors) as restarted:
        assert gap_of(restarted).reason is GapReason.TRIMMED


def test_a_trim_to_nothing_is_a_gap_too(consumer: OutcomeConsumer, publisher: Publisher) -> None:
    publisher.publish(4)
    trim(publisher, 4, 0)
    assert gap_of(consumer).reason is GapReason.TRIMMED


def test_a_first_start_takes_what_is_left(store_url: str, publisher: Publisher, tmp_path: Path) -> None:
    publisher.publish(4, calls=5)
    trim(publisher, 4, 2)
    publisher.publish(7)
    trim(publisher, 7, 0)
    with OutcomeConsumer(store_url, FileCursorStore(tmp_path / "new")) as consumer:
        assert [outcome.mutation_revision for outcome in read(consumer)] == [8, 10]
        publisher.publish(7)
        assert len(read(consumer)) == 1


def test_a_trim_before_a_first_outcome_was_read_is_a_gap(
    store_url: str, publisher: Publisher, cursors: FileCursorStore
) -> None:
    """A consumer that has stood at nothing was promised everything since then."""
    with OutcomeConsumer(store_url, cursors) as consumer:
        assert read(consumer) == []
    publisher.publish(4, calls=2)
    trim(publisher, 4, 1)
    with OutcomeConsumer(store_url, cursors) as consumer:
        assert gap_of(consumer).reason is GapReason.TRIMMED


def test_erased_outcomes_are_no_gap(consumer: OutcomeConsumer, publisher: Publisher) -> None:
    """Erasure deletes single entries; the floor stays, and so does the stream's last id."""
    ((last, _),) = publisher.store.command([["XREVRANGE", outcomes_key(4), "+", "-", "COUNT", 1]])[0]
    publisher.store.command([["XDEL", outcomes_key(4), last]])
    assert read(consumer) == []
    publisher.publish(4)
    assert len(read(consumer)) == 1


def test_an_emptied_store_is_a_gap(
    store_url: str, consumer: OutcomeConsumer, cursors: FileCursorStore, valkey_session: ValkeyProcess
) -> None:
    valkey_session.client().flushall()
    assert gap_of(consumer).reason is GapReason.STORE_CHANGED
    Publisher(store_url).publish(4)
    assert gap_of(consumer).reason is GapReason.STORE_CHANGED
    with OutcomeConsumer(store_url, cursors) as restarted:
        assert gap_of(restarted).reason is GapReason.STORE_CHANGED
        assert len(list(restarted.resync())) == 1
        assert read(restarted) == []


def test_a_waiting_consumer_notices_an_emptied_store(
    consumer: OutcomeConsumer, publisher: Publisher, valkey_session: ValkeyProcess
) -> None:
    feed = iter(consumer.batches())
    publisher.publish(6)
    assert [outcome.shard for outcome in next(feed)] == [6]
    valkey_session.client().flushall()
    with pytest.raises(CursorGap):
        next(feed)


def test_a_stream_that_ends_below_the_cursor_is_a_gap(
    store_url: str, consumer: OutcomeConsumer, publisher: Publisher, cursors: FileCursorStore
) -> None:
    publisher.store.command([["DEL", outcomes_key(5)], ["XADD", outcomes_key(5), "5-0", "a", "b"]])
    gap = gap_of(consumer)
    assert (gap.reason, gap.shard) == (GapReason.WENT_BACK, 5)
    publisher.store.command([["DEL", outcomes_key(5)]])
    with OutcomeConsumer(store_url, cursors) as restarted:
        assert gap_of(restarted).reason is GapReason.WENT_BACK


@pytest.mark.proves("C-27")
def test_accepting_a_store_is_a_gap(store_url: str, consumer: OutcomeConsumer, publisher: Publisher) -> None:
    accept_store(StoreSettings(RedisConfig(url=store_url)))
    assert gap_of(consumer).reason is GapReason.STORE_CHANGED
    assert len(list(consumer.resync())) == 5
    publisher.publish(4)
    assert len(read(consumer)) == 1


@pytest.mark.proves("C-27")
def test_an_emptied_store_can_be_followed_as_soon_as_it_is_accepted(
    store_url: str, consumer: OutcomeConsumer, publisher: Publisher, valkey_session: ValkeyProcess
) -> None:
    """Before any process opened it anew: the one that met the loss goes on with the connection it has."""
    valkey_session.client().flushall()
    with pytest.raises(StoreWentBack):
        publisher.publish(4)
    accept_store(StoreSettings(RedisConfig(url=store_url)))
    assert list(consumer.resync()) == []
    publisher.publish(4)
    assert len(read(consumer)) == 1


def test_resynchronisation_brings_what_history_has_and_the_streams_go_on(
    store_url: str, consumer: OutcomeConsumer, publisher: Publisher, cursors: FileCursorStore
) -> None:
    publisher.publish(4, calls=2, status=MutationStatus.OUTCOME_UNKNOWN)
    sessions = [publisher.publish(shard, calls=2) for shard in range(SHARDS)]
    trim(publisher, 4, 0)
    assert gap_of(consumer).reason is GapReason.TRIMMED
    found = list(consumer.resync())
    assert len(found) == 5 + 1 + 2 * SHARDS
    assert {outcome.stream_id for outcome in found} == {None}
    for session in sessions:
        ledger = publisher.store.run(read_session("acme", session, SHARDS))
        mine = [outcome.record for outcome in found if outcome.session_id == session]
        assert mine == history_of(ledger)
    assert read(consumer) == []
    publisher.publish(4)
    with OutcomeConsumer(store_url, cursors) as restarted:
        assert len(read(restarted)) == 1


def test_what_happens_during_resynchronisation_is_not_lost(consumer: OutcomeConsumer, publisher: Publisher) -> None:
    session = publisher.publish(4, status=MutationStatus.OUTCOME_UNKNOWN)
    found: list[Outcome] = []
    for outcome in consumer.resync():
        if not found:
            publisher.publish(15)
        if outcome.session_id == session:
            turn, mutation = outcome.logical_turn_id, outcome.mutation_id
            publisher.store.run(
                reconcile_mutation("acme", session, turn, mutation, completed=True, by="test", shards=SHARDS)
            )
        found.append(outcome)
    later = read(consumer)
    assert {outcome.shard for outcome in later} == {4, 15}
    (reconciled,) = [outcome for outcome in later if outcome.session_id == session]
    assert (reconciled.mutation_revision, reconciled.record["status"]) == (3, "completed")


def test_each_turn_comes_in_revision_order(consumer: OutcomeConsumer, publisher: Publisher) -> None:
    """Not in the order of first intents: a reconciliation moves an early mutation behind later ones."""
    session = session_in(8)
    publisher.admit(session, 3, on_error="continue")
    publisher.work([8], MutationStatus.OUTCOME_UNKNOWN)
    before = publisher.store.run(read_session("acme", session, SHARDS))
    assert before is not None
    (turn,) = before.turns
    publisher.store.run(
        reconcile_mutation(
            "acme", session, turn.logical_turn_id, turn.entries[0].mutation_id, completed=True, by="t", shards=SHARDS
        )
    )
    revisions = [o.mutation_revision for o in consumer.resync() if o.session_id == session]
    assert revisions == [4, 6, 7]


def test_a_call_under_way_is_left_to_the_streams(consumer: OutcomeConsumer, publisher: Publisher) -> None:
    session = session_in(8)
    publisher.admit(session)
    (claimed,) = publisher.begin(8)
    assert [o for o in consumer.resync() if o.session_id == session] == []
    publisher.settle(8, claimed)
    assert [o.session_id for o in read(consumer)] == [session]


def test_a_resynchronisation_that_was_stopped_is_not_done(
    store_url: str, consumer: OutcomeConsumer, publisher: Publisher, cursors: FileCursorStore
) -> None:
    publisher.publish(4, calls=2)
    trim(publisher, 4, 0)
    for count, _ in enumerate(consumer.resync()):
        if count == 6:
            break
    assert gap_of(consumer).reason is GapReason.TRIMMED
    with OutcomeConsumer(store_url, cursors) as restarted:
        assert gap_of(restarted).reason is GapReason.TRIMMED


def test_tenants_are_found_or_named(
    store_url: str, consumer: OutcomeConsumer, publisher: Publisher, cursors: FileCursorStore
) -> None:
    publisher.publish(2, tenant="other:sessions:x")
    everything = list(consumer.resync())
    assert {outcome.tenant for outcome in everything} == {"acme", "other:sessions:x"}
    assert len(everything) == 6
    assert {outcome.tenant for outcome in consumer.resync(["acme"])} == {"acme"}
    with OutcomeConsumer(store_url, cursors, tenant="other:sessions:x") as theirs:
        assert next(iter(theirs.resync())).tenant == "other:sessions:x"


def test_many_sessions_are_read_in_pieces_and_without_loaded_scripts(
    consumer: OutcomeConsumer, publisher: Publisher, valkey_session: ValkeyProcess
) -> None:
    sessions = [session_in(11) for _ in range(150)]
    for session in sessions:
        publisher.admit(session)
    publisher.work([11])
    client: Any = valkey_session.client()
    found: list[Outcome] = []
    for outcome in consumer.resync():
        if len(found) % 60 == 0:
            client.script_flush()
        found.append(outcome)
    assert {outcome.session_id for outcome in found if outcome.shard == 11} == set(sessions)
    assert len(found) == 155


def test_a_store_that_went_back_is_not_resynchronised_before_it_is_accepted(
    store_url: str, consumer: OutcomeConsumer, publisher: Publisher
) -> None:
    publisher.store.command([["HSET", "ml:{04}:seq", "refused", "x"]])
    with pytest.raises(StoreWentBack, match="store accept"):
        list(consumer.resync(["acme"]))
    accept_store(StoreSettings(RedisConfig(url=store_url)))
    assert len(list(consumer.resync())) == 5


def test_a_store_that_is_being_accepted_is_not_read_yet(consumer: OutcomeConsumer, publisher: Publisher) -> None:
    """Shard by shard it gets its new id; history read in between would be half of each."""
    publisher.store.command([["HSET", "ml:{0b}:seq", "store", "the-new-one"]])
    with pytest.raises(StoreUnavailable, match="being accepted"):
        list(consumer.resync())
    assert gap_of(consumer).shard == 11


def test_reading_never_makes_a_store_refuse(
    store_url: str, consumer: OutcomeConsumer, publisher: Publisher, valkey_session: ValkeyProcess
) -> None:
    """The scripts note a foreign store id; a consumer must not send one."""
    valkey_session.client().flushall()
    gap_of(consumer)
    fresh = Publisher(store_url)
    fresh.publish(4)
    list(consumer.resync())
    assert fresh.store.command([["HGET", "ml:{04}:seq", "refused"]]) == [None]
    fresh.close()


def test_async_resynchronisation_is_the_same(
    store_url: str, consumer: OutcomeConsumer, publisher: Publisher, cursors: FileCursorStore
) -> None:
    publisher.publish(4, calls=2)
    trim(publisher, 4, 0)
    expected = keys(list(consumer.resync()))
    trim_again = publisher.publish(4)
    trim(publisher, 4, 0)

    async def recover() -> list[Outcome]:
        async with OutcomeConsumer(store_url, cursors) as other:
            with pytest.raises(CursorGap):
                await anext(aiter(other))
            found = [outcome async for outcome in other.resync()]
            assert [outcome async for outcome in other.outcomes(once=True)] == []
            return found

    found = asyncio.run(recover())
    assert keys([outcome for outcome in found if outcome.session_id != trim_again]) == expected


def test_a_gap_says_where_and_what_to_do(consumer: OutcomeConsumer, publisher: Publisher) -> None:
    publisher.publish(4)
    trim(publisher, 4, 0)
    gap = gap_of(consumer)
    assert str(gap).endswith("outcomes after it were trimmed before they were read; read history with resync()")
    assert "shard 04" in str(gap)
    assert publisher.store.command([["GET", floor_key(4)]])[0] is not None
