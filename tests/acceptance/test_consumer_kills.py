"""A consumer killed again and again while outcomes are published in every shard misses nothing; a trim is a gap."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ledger.consumer import CursorGap, FileCursorStore, OutcomeConsumer
from ledger.erasure import sweep_retention
from ledger.history import read_session
from tests.support.consumer_lives import ConsumerLives
from tests.support.publishing import SHARDS, Key, Publisher
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

LONG = os.environ.get("MUTATION_LEDGER_TESTS") == "long"
OUTCOMES, KILLS = (5_000, 100) if LONG else (400, 8)
CALLS = 8
TOMBSTONE_MS = 86_400_000


@pytest.fixture
def publisher(valkey: ValkeyProcess) -> Iterator[Publisher]:
    """Publishes on a store of its own."""
    made = Publisher(valkey.url)
    yield made
    made.close()


def _publish(publisher: Publisher, outcomes: int, dice: random.Random, sessions: list[str]) -> None:
    """Plans in every shard, in random order, until so many outcomes were published."""
    shards = [shard for _ in range(-(-outcomes // (CALLS * SHARDS))) for shard in range(SHARDS)]
    dice.shuffle(shards)
    left = outcomes
    for shard in shards:
        if left <= 0:
            return
        sessions.append(publisher.publish(shard, min(CALLS, left)))
        left -= CALLS


def _history(publisher: Publisher, sessions: list[str]) -> set[Key]:
    """What the ledger itself says of these sessions: the latest change of every mutation."""
    found = (publisher.store.run(read_session("acme", session, SHARDS)) for session in sessions)
    return {
        (turn.logical_turn_id, entry.mutation_id, entry.revision)
        for session in found
        if session is not None
        for turn in session.turns
        for entry in turn.entries
    }


def _in_order(seen: list[Key]) -> bool:
    """Whether each turn's revisions were first seen in their order."""
    latest: dict[str, int] = {}
    for turn, _, revision in dict.fromkeys(seen):
        if revision < latest.get(turn, 0):
            return False
        latest[turn] = revision
    return True


@pytest.fixture
def reader(valkey: ValkeyProcess, tmp_path: Path) -> Iterator[ConsumerLives]:
    """A consumer of that store; nothing of it is left when a test fails."""
    with ConsumerLives(valkey.url, tmp_path) as lives:
        yield lives


@pytest.mark.acceptance
@pytest.mark.proves("C-111")
def test_killed_at_random_it_misses_nothing_and_after_a_trim_it_resynchronises(
    publisher: Publisher, valkey: ValkeyProcess, reader: ConsumerLives
) -> None:
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")
    dice = random.Random(seed)
    sessions: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(_publish, publisher, OUTCOMES, random.Random(seed), sessions)
        for _ in range(KILLS):
            reader.start()
            # Somewhere in what it reads in this life; towards the end there may be nothing left to read.
            wanted = len(reader.seen()) + dice.randint(1, max(1, 2 * OUTCOMES // KILLS))
            wait_until(lambda wanted=wanted: len(reader.seen()) >= min(wanted, OUTCOMES), 30, "progress")  # type: ignore[misc]
            reader.kill()
        publishing.result(120)
    reader.start()
    expected = _history(publisher, sessions)
    assert len(expected) == OUTCOMES
    wait_until(lambda: set(reader.seen()) >= expected, 60, "everything to be seen")
    reader.kill()
    assert set(reader.seen()) == expected
    assert _in_order(reader.seen())
    for begin, end in zip([0, *reader.ends], reader.ends, strict=False):
        life = reader.seen()[begin:end]
        assert len(set(life)) == len(life), "one life saw an outcome twice"

    # While it is down, more is published, and the streams are trimmed past its cursor.
    _publish(publisher, 2 * CALLS * SHARDS, dice, sessions)
    for shard in range(SHARDS):
        publisher.store.run(sweep_retention(shard, TOMBSTONE_MS, 1, interval_ms=1))
    expected = _history(publisher, sessions)
    with OutcomeConsumer(valkey.url, FileCursorStore(reader.cursor), block_seconds=0.05) as consumer:
        with pytest.raises(CursorGap):
            next(iter(consumer.outcomes(once=True)))
        again = [(one.logical_turn_id, one.mutation_id, one.mutation_revision) for one in consumer.resync()]
        assert set(again) == expected
        assert _in_order(again)
        # And the streams go on from there.
        later = publisher.publish(3, CALLS)
        rest = [(one.logical_turn_id, one.mutation_id, one.mutation_revision) for one in consumer.outcomes(once=True)]
        assert set(rest) >= _history(publisher, [later])
        assert set(rest) | expected >= _history(publisher, sessions)
