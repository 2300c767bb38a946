"""Where cursors are kept, and a consumer that is killed again and again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.consumer import CallableCursorStore, Cursors, CursorStore, FileCursorStore, RedisCursorStore
from ledger.errors import ConfigError, StoreUnavailable
from tests.support.consumer_lives import ConsumerLives
from tests.support.publishing import SHARDS, Publisher, published
from tests.support.valkey import ValkeyProcess, free_port
from tests.support.wait import wait_until

SOME = Cursors("store", ("0-0", "17-3"))
LATER = Cursors("store", ("5-0", "18-0"))


@pytest.fixture(params=["file", "redis", "callable"])
def kept(request: pytest.FixtureRequest, tmp_path: Path, store_url: str) -> Iterator[CursorStore]:
    """Each kind of store, empty."""
    if request.param == "file":
        yield FileCursorStore(tmp_path / "cursor")
    elif request.param == "redis":
        store = RedisCursorStore(store_url, "reports")
        yield store
        store.close()
    else:
        texts: list[str] = []
        yield CallableCursorStore(lambda: texts[-1] if texts else None, texts.append)


def test_cursors_are_kept(kept: CursorStore) -> None:
    assert kept.load() is None
    kept.save(SOME)
    assert kept.load() == SOME
    kept.save(LATER)
    assert kept.load() == LATER


def test_a_file_is_replaced_whole_and_leaves_no_litter(tmp_path: Path) -> None:
    store = FileCursorStore(tmp_path / "cursor")
    store.save(SOME)
    before = (tmp_path / "cursor").stat().st_ino
    store.save(LATER)
    assert (tmp_path / "cursor").stat().st_ino != before
    assert [path.name for path in tmp_path.iterdir()] == ["cursor"]


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "cursor").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"cursor cannot be used: damaged: move it away"):
        FileCursorStore(tmp_path / "cursor").load()
    with pytest.raises(ConfigError, match="cannot be used: Is a directory"):
        FileCursorStore(tmp_path).load()
    with pytest.raises(ConfigError, match="cannot be written: No such file or directory"):
        FileCursorStore(tmp_path / "no" / "cursor").save(SOME)


def test_a_store_that_is_away_is_told_apart(tmp_path: Path) -> None:
    store = RedisCursorStore(f"redis://127.0.0.1:{free_port()}/0", "reports")
    with pytest.raises(StoreUnavailable):
        store.load()
    with pytest.raises(StoreUnavailable):
        store.save(SOME)


@pytest.mark.proves("C-111")
def test_a_killed_consumer_misses_nothing(store_url: str, tmp_path: Path, valkey_session: ValkeyProcess) -> None:
    """At least once, and at every moment each turn was seen up to some revision without a hole."""
    dice = random.Random(20_11)
    publisher = Publisher(store_url)
    total = 0
    with ConsumerLives(store_url, tmp_path) as victim:
        for _ in range(6):
            victim.start()
            for shard in range(SHARDS):
                calls = dice.randint(1, 3)
                publisher.publish(shard, calls=calls)
                total += calls
            wanted = dice.randint(total - SHARDS // 2, total)
            wait_until(lambda wanted=wanted: len(set(victim.seen())) >= wanted, 20, "outcomes to be seen")  # type: ignore[misc]
            victim.kill()
        victim.start()
        expected = list(published(valkey_session.client()))
        wait_until(lambda: set(victim.seen()) >= set(expected), 20, "every outcome to be seen")
        victim.kill()
    publisher.close()

    seen = victim.seen()
    assert set(seen) == set(expected)
    in_order: dict[str, list[int]] = {}
    for turn, _, revision in expected:
        in_order.setdefault(turn, []).append(revision)
    first_seen: dict[str, list[int]] = {}
    for turn, _, revision in seen:
        revisions = first_seen.setdefault(turn, [])
        if revision not in revisions:
            revisions.append(revision)
    assert first_seen == in_order
    for begin, end in zip([0, *victim.ends], victim.ends, strict=False):
        life = seen[begin:end]
        assert len(set(life)) == len(life), "one life saw an outcome twice"
