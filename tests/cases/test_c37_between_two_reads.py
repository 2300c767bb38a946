"""C37: nothing falls between two reads: not between time-outs, not between the reply and the stream."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ledger.consumer import CallableCursorStore, OutcomeConsumer
from ledger.ids import shard_of_id
from tests.support.case_tools import PAY
from tests.support.casework import CaseStack, follow
from tests.support.publishing import SHARDS, Publisher, published
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

OUTCOMES = 100


@pytest.fixture
def publisher(store_url: str) -> Iterator[Publisher]:
    """Publishes on the session's store."""
    made = Publisher(store_url)
    yield made
    made.close()


def _memory() -> CallableCursorStore:
    texts: list[str] = []
    return CallableCursorStore(lambda: texts[-1] if texts else None, texts.append)


@pytest.mark.proves("C-111")
def test_a_hundred_outcomes_over_reads_that_time_out(
    publisher: Publisher, store_url: str, valkey_session: ValkeyProcess
) -> None:
    dice = random.Random(37)
    gaps = threading.Event()

    def publish() -> None:
        done = 0
        while done < OUTCOMES:
            some = min(dice.randint(1, 4), OUTCOMES - done)
            publisher.publish(dice.randrange(SHARDS), some)
            done += some
            gaps.wait(dice.uniform(0, 0.09))

    thread = threading.Thread(target=publish)
    thread.start()
    seen = []
    with OutcomeConsumer(store_url, _memory(), block_seconds=0.02) as consumer:
        for outcome in consumer:
            seen.append((outcome.logical_turn_id, outcome.mutation_id, outcome.mutation_revision))
            if len(seen) == OUTCOMES:
                break
    thread.join(20)
    expected = list(published(valkey_session.client()))
    assert len(expected) == OUTCOMES
    assert sorted(seen) == sorted(expected)
    for shard in range(SHARDS):
        assert _of(shard, seen) == _of(shard, expected)


def _of(shard: int, keys: list[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    return [key for key in keys if shard_of_id(key[0], SHARDS) == shard]


@pytest.mark.proves("C-112")
def test_what_happens_between_the_reply_and_the_stream_is_told(cases: CaseStack) -> None:
    reply = cases.api.trigger("c37", "d1", [(PAY, {"case": "c37"})]).body
    cursor = reply["journal_cursor"]
    wait_until(lambda: cases.api.run(reply["run_id"])["status"] == "completed", 15, "the run to end")
    with follow(cases.api, reply["run_id"], after=cursor) as response:
        lines = response.read().decode().splitlines()
    events = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert events == ["tool_execution_started", "mutation_outcome", "tool_result", "run_completed"]
    numbers = [int(line.removeprefix("id: ")) for line in lines if line.startswith("id: ")]
    assert numbers == list(range(cursor + 1, cursor + 5))


@pytest.mark.proves("C-111")
def test_two_in_the_same_millisecond_with_a_reconnect_between(
    store_url: str, publisher: Publisher, valkey_session: ValkeyProcess
) -> None:
    publisher.publish(3, 1)
    client: Any = valkey_session.client()
    stream = "ml:{03}:outcomes"
    (_, fields), *_ = client.xrange(stream)
    client.xadd(stream, fields | {b"mutation_revision": b"3"}, id="9999999999999-0")
    client.xadd(stream, fields | {b"mutation_revision": b"4"}, id="9999999999999-1")
    cursors = _memory()
    seen = []
    for _ in range(3):
        with OutcomeConsumer(store_url, cursors, count=1, block_seconds=0.05) as consumer:
            seen.append(next(iter(consumer)).mutation_revision)
            consumer.commit()
    assert seen == [2, 3, 4]
