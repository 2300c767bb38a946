"""Where cursors are kept, and a consumer that is killed again and again."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.consumer import CallableCursorStore, Cursors, CursorStore, FileCursorStore, RedisCursorStore
from ledger.errors import ConfigError, StoreUnavailable
from ledger.supervise.child import command_line
from tests.support.publishing import SHARDS, Key, Publisher, published
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


class Victim:
    """A consumer process that is killed at random points of its work."""

    def __init__(self, url: str, folder: Path) -> None:
        self.output = folder / "output"
        program = [sys.executable, "-m", "tests.support.consumer_process"]
        self._command = command_line([*program, url, str(folder / "cursor"), str(self.output)])
        self._process: subprocess.Popen[bytes] | None = None
        self.ends: list[int] = []

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, cwd=Path(__file__).parents[2])

    def lines(self) -> list[str]:
        return self.output.read_text().splitlines() if self.output.exists() else []

    def await_outcomes(self, count: int) -> None:
        """Waits until that many different outcomes were seen in all."""
        wait_until(lambda: len(set(self.lines())) >= count, 20, f"{count} outcomes to be seen")

    def kill(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, "the consumer ended by itself"
        self._process.kill()
        self._process.wait(10)
        self.ends.append(len(self.lines()))


def keys_of(lines: list[str]) -> list[Key]:
    parts = [line.split() for line in lines]
    return [(turn, mutation, int(revision)) for turn, mutation, revision in parts]


@pytest.mark.proves("C-111")
def test_a_killed_consumer_misses_nothing(store_url: str, tmp_path: Path, valkey_session: ValkeyProcess) -> None:
    """At least once, and at every moment each turn was seen up to some revision without a hole."""
    dice = random.Random(20_11)
    publisher = Publisher(store_url)
    victim = Victim(store_url, tmp_path)
    total = 0
    for _ in range(6):
        victim.start()
        for shard in range(SHARDS):
            calls = dice.randint(1, 3)
            publisher.publish(shard, calls=calls)
            total += calls
        victim.await_outcomes(dice.randint(total - SHARDS // 2, total))
        victim.kill()
    victim.start()
    expected = list(published(valkey_session.client()))
    wait_until(lambda: set(keys_of(victim.lines())) >= set(expected), 20, "every outcome to be seen")
    victim.kill()
    publisher.close()

    seen = keys_of(victim.lines())
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
