"""A record that a newer version wrote is refused by every script that reads it, and the refusal changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ledger import history
from ledger.approvals import pending_approvals
from ledger.attempts import Begun
from ledger.config import RedisConfig
from ledger.consumer.cursors import Cursors
from ledger.consumer.plan import discover
from ledger.erasure import erase_session
from ledger.errors import ConfigError, StoreError
from ledger.records import Run
from ledger.store import StoreSettings, SyncStore
from ledger.store.codec import FORMAT
from tests.support.ledger import SEQ, SHARD, SHARDS, TENANT, Ledger, key, plan, sid_of

NEWER = bytes([FORMAT[0] + 1])


@dataclass(frozen=True)
class Scene:
    """Session s1: one settled call, one in flight under `token`, one that waits for a person in a run of its own."""

    ledger: Ledger
    run: Run
    work: Begun
    token: str
    asked: Run

    @property
    def approval(self) -> str:
        """The request's id."""
        found = self.asked.calls[0].approval_id
        assert found is not None
        return found

    def stored(self, record: str) -> tuple[str, bytes]:
        """Key and field of a record."""
        session = key(f"session:{sid_of('s1')}")
        names: list[bytes] = sorted(self.ledger.raw.hkeys(session))
        found = {
            "session": (session, b"meta"),
            "turn": (session, b"t1"),
            "in flight": (session, b"c"),
            "entry": (session, b"m1:" + bytes.fromhex(self.work.mutation_id)),
            "delivery": (session, next(name for name in names if name.startswith(b"d") and len(name) == 33)),
            "run": (key(f"run:{self.run.run_id}"), b"m"),
            "run's state": (key(f"run:{self.run.run_id}"), b"s"),
            "run's call": (key(f"run:{self.run.run_id}"), b"1"),
            "asked run": (key(f"run:{self.asked.run_id}"), b"m"),
            "approval": (key(f"approval:{self.approval}"), b"a"),
        }
        return found[record]


@pytest.fixture
def scene(ledger: Ledger) -> Scene:
    """Everything on record once."""
    run = ledger.admit(plan(3)).run
    first, token = ledger.begin_first()
    work = ledger.settle(first, token, next_step=2).work
    assert isinstance(work, Begun)
    asked = ledger.admit(plan(1, level="approve", text="asked"), did="d2").run
    return Scene(ledger, run, work, token, asked)


# What is sent, and the records that it must read.
READERS: dict[str, tuple[Callable[[Scene], Any], tuple[str, ...]]] = {
    "history": (lambda s: s.ledger.session(), ("session", "turn", "entry")),
    "sessions": (lambda s: s.ledger.run(history.list_sessions(SHARD, TENANT, 9)), ("session",)),
    "run": (lambda s: s.ledger.read(s.run), ("session", "run", "run's state", "run's call", "entry")),
    "journal": (lambda s: s.ledger.journal(s.run), ("session", "run", "run's state")),
    "inbox": (lambda s: s.ledger.run(pending_approvals(SHARD, TENANT, 9)), ("session", "asked run", "approval")),
    "approval": (lambda s: s.ledger.approval(s.approval), ("session", "asked run", "approval")),
    "decide": (lambda s: s.ledger.decide(s.approval), ("session", "asked run", "approval")),
    "cancel": (lambda s: s.ledger.cancel(s.run), ("session", "run", "run's state", "run's call")),
    "admit": (lambda s: s.ledger.admit(plan(1), did="d3"), ("session",)),
    "admit again": (lambda s: s.ledger.admit(plan(3)), ("session", "delivery", "run", "run's state")),
    "continue": (
        lambda s: s.ledger.admit(plan(1), did="d3", logical_turn_id=s.work.logical_turn_id),
        ("session", "turn"),
    ),
    "settle": (
        lambda s: s.ledger.settle(s.work, s.token),
        ("session", "in flight", "turn", "entry", "run", "run's state", "run's call"),
    ),
    "settle and begin": (
        lambda s: s.ledger.settle(s.work, s.token, next_step=3),
        ("session", "in flight", "turn", "entry", "run", "run's state", "run's call"),
    ),
    "put back": (
        lambda s: s.ledger.void(s.work, s.token, 3),
        ("session", "in flight", "turn", "entry", "run", "run's state", "run's call"),
    ),
    "reconcile": (
        lambda s: s.ledger.reconcile(s.work, completed=False, dispatcher_stopped=True),
        ("session", "turn", "entry", "in flight"),
    ),
    "attach": (lambda s: s.ledger.attach(s.work, {"id": "T-1"}), ("session", "turn", "entry")),
    "erase": (
        lambda s: s.ledger.run(erase_session(TENANT, "s1", 1000, SHARDS)),
        ("session", "turn", "entry", "delivery", "run", "run's state", "run's call", "asked run", "approval"),
    ),
}
CASES = [(reader, record) for reader, (_, records) in READERS.items() for record in records]


@pytest.mark.parametrize(("reader", "record"), CASES, ids=[f"{reader}, {record}" for reader, record in CASES])
def test_a_newer_record_is_refused_and_nothing_changes(scene: Scene, reader: str, record: str) -> None:
    name, field = scene.stored(record)
    stored = scene.ledger.raw.hget(name, field)
    scene.ledger.raw.hset(name, field, NEWER + stored[1:])
    before = scene.ledger.snapshot()
    with pytest.raises(StoreError) as caught:
        READERS[reader][0](scene)
    assert caught.value.code == "format_too_new"
    assert "update this process" in str(caught.value)
    assert scene.ledger.snapshot() == before
    # Whoever may read it goes on from there.
    scene.ledger.raw.hset(name, field, stored)
    READERS[reader][0](scene)


def test_a_newer_event_is_refused(scene: Scene) -> None:
    journal = key(f"run:{scene.run.run_id}:journal")
    scene.ledger.raw.lset(journal, 0, NEWER + scene.ledger.raw.lindex(journal, 0)[1:])
    with pytest.raises(StoreError) as caught:
        scene.ledger.journal(scene.run)
    assert caught.value.code == "format_too_new"


def test_every_record_in_the_store_begins_with_its_format(scene: Scene) -> None:
    plain = {b"o", b"p", b"w"}
    for name in scene.ledger.raw.keys("ml:*"):
        if b":session:" in name or (b":run:" in name and not name.endswith(b":journal")) or b":approval:" in name:
            for field, value in scene.ledger.raw.hgetall(name).items():
                text = field in plain or field.startswith(b"l") or field[:1] == b"r" or field in (b"nr", b"cx", b"tr")
                assert text or value[:1] == FORMAT, (name, field)
        elif name.endswith(b":journal"):
            assert all(event[:1] == FORMAT for event in scene.ledger.raw.lrange(name, 0, -1))


def test_a_store_that_a_newer_version_laid_out_is_refused_at_start(ledger: Ledger, store_url: str) -> None:
    assert ledger.raw.hget(SEQ, "layout") == b"1"
    ledger.raw.hset(SEQ, "layout", 2)
    other = SyncStore(StoreSettings(RedisConfig(url=store_url, shards=SHARDS)))
    with pytest.raises(ConfigError, match="a newer version of mutation-ledger made this store") as caught:
        other.open()
    other.close()
    assert caught.value.code == "format_too_new"
    steps = discover()
    next(steps)
    steps.send([b"cluster_enabled:0"])
    with pytest.raises(ConfigError, match="made this store"):
        steps.send([[b"id", b"1", b"2"]])


def test_a_cursor_that_a_newer_version_saved_is_refused_and_not_called_damaged() -> None:
    saved = Cursors("id", ("0-0",)).to_json()
    with pytest.raises(ConfigError, match="update this consumer") as caught:
        Cursors.from_json(saved.replace('"version": 1', '"version": 2'))
    assert caught.value.code == "format_too_new"
