"""A consumer killed again and again while outcomes are published in every shard misses nothing; a trim is a gap."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.consumer import CursorGap, FileCursorStore, OutcomeConsumer
from ledger.erasure import sweep_retention
from ledger.history import read_session
from ledger.supervise.child import command_line
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


class Reader:
    """A consumer process with a cursor file, and what all its lives wrote down."""

    def __init__(self, url: str, folder: Path) -> None:
        self.cursor = folder / "cursor"
        self._output = folder / "output"
        program = [sys.executable, "-m", "tests.support.consumer_process", url, str(self.cursor), str(self._output)]
        self._command = command_line(program)
        self._process: subprocess.Popen[bytes] | None = None
        self.lives: list[int] = []

    def start(self) -> None:
        """Begins a life."""
        self._process = subprocess.Popen(self._command, cwd=Path(__file__).parents[2])

    def kill(self) -> None:
        """SIGKILL, wherever it is."""
        assert self._process is not None
        assert self._process.poll() is None, "the consumer ended by itself"
        self._process.kill()
        self._process.wait(10)
        self.lives.append(len(self.seen()))

    def seen(self) -> list[Key]:
        """(logical turn, mutation, revision) in the order in which they were handed out."""
        text = self._output.read_text() if self._output.exists() else ""
        rows = [line.split() for line in text.splitlines()]
        return [(turn, mutation, int(revision)) for turn, mutation, revision in rows]


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


@pytest.mark.acceptance
@pytest.mark.proves("C-111")
def test_killed_at_random_it_misses_nothing_and_after_a_trim_it_resynchronises(
    publisher: Publisher, valkey: ValkeyProcess, tmp_path: Path
) -> None:
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")
    dice = random.Random(seed)
    sessions: list[str] = []
    reader = Reader(valkey.url, tmp_path)
    publishing = threading.Thread(target=_publish, args=(publisher, OUTCOMES, random.Random(seed), sessions))
    publishing.start()
    for _ in range(KILLS):
        reader.start()
        # Somewhere in what it reads in this life; towards the end there may be nothing left to read.
        wanted = len(reader.seen()) + dice.randint(1, max(1, 2 * OUTCOMES // KILLS))
        wait_until(lambda wanted=wanted: len(reader.seen()) >= min(wanted, OUTCOMES), 30, "progress")  # type: ignore[misc]
        reader.kill()
    publishing.join(120)
    reader.start()
    expected = _history(publisher, sessions)
    assert len(expected) == OUTCOMES
    wait_until(lambda: set(reader.seen()) >= expected, 60, "everything to be seen")
    reader.kill()
    assert set(reader.seen()) == expected
    assert _in_order(reader.seen())
    for begin, end in zip([0, *reader.lives], reader.lives, strict=False):
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
