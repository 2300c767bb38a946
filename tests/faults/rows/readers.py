"""Row 23: a reader whose connection drops every 100 ms, while trimming overtakes it now and then."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger.consumer import CursorGap, FileCursorStore, Outcome, OutcomeConsumer
from ledger.consumer.cursors import id_key
from ledger.consumer.errors import GapReason
from ledger.consumer.keys import floor_key, outcomes_key
from ledger.errors import StoreError
from tests.faults.harness import aof
from tests.faults.harness.invariants import Ledger, read
from tests.faults.harness.tally import Tally
from tests.faults.harness.world import World
from tests.support.checker import SHARDS
from tests.support.proxy import TcpProxy
from tests.support.wait import wait_until

DROP_SECONDS = 0.1
KEPT = 3
CONFIG = f"[retention]\noutcome_stream_maxlen = {KEPT}\n"


@dataclass(frozen=True)
class Gap:
    """What a reader was told: in `shard` whatever is in (after, upto] was not read from the stream."""

    shard: int
    after: str
    upto: str


class Reader:
    """Reads through a proxy that drops it; begins anew from its saved cursor each time, as after a crash."""

    def __init__(self, url: str, cursors: Path) -> None:
        self.heard: list[Outcome] = []
        self.gaps: list[Gap] = []
        self.reasons: list[GapReason] = []
        self.restarts = 0
        self._url = url
        self._cursors = FileCursorStore(cursors)
        self._stop = threading.Event()
        self._asleep = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dropped-reader", daemon=True)
        self._errors: list[BaseException] = []

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends; raises what went wrong."""
        self._stop.set()
        self._thread.join(15)
        if self._errors:
            raise self._errors[0]

    @contextlib.contextmanager
    def asleep(self) -> Any:
        """It reads nothing inside the block."""
        self._asleep.set()
        yield
        self._asleep.clear()

    def positions(self) -> tuple[str, ...]:
        """Where its saved cursors stand."""
        saved = self._cursors.load()
        return saved.positions if saved is not None else ("0-0",) * SHARDS

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.01):
                if not self._asleep.is_set():
                    self.restarts += 1
                    self._once()
        except BaseException as error:  # shown by stop()
            self._errors.append(error)

    def _once(self) -> None:
        with OutcomeConsumer(self._url, self._cursors, block_seconds=0.2) as consumer, contextlib.suppress(StoreError):
            try:
                self._follow(consumer.outcomes())
            except CursorGap as gap:
                self.reasons.append(gap.reason)
                before = self.positions()
                self._follow(consumer.resync())
                moved = enumerate(zip(before, self.positions(), strict=True))
                self.gaps += [Gap(shard, after, upto) for shard, (after, upto) in moved]

    def _follow(self, feed: Iterable[Outcome]) -> None:
        for outcome in feed:
            self.heard.append(outcome)
            if self._stop.is_set() or self._asleep.is_set():
                return


def dropped_reader(folder: Path, seed: int, rounds: int = 2) -> Tally:
    """Row 23. In order per turn, every change of the store's history read, or inside a gap that the reader was told."""
    with World(folder, seed, config=CONFIG) as world, TcpProxy(world.valkey.port) as proxy:
        world.start(workers=2, read=False)
        reader = Reader(proxy.url, folder / "dropped.cursor")
        dropping = threading.Event()
        dropper = threading.Thread(target=_drop, args=(world, proxy, dropping), daemon=True)
        traffic = world.traffic(sessions=6)
        client: Any = world.valkey.client()
        reader.start()
        dropper.start()
        try:
            for _ in range(rounds):
                _work(world, 30)
                with reader.asleep():
                    wait_until(lambda: _overtaken(client, reader), 60, "trimming to overtake the reader")
                    world.count("overtaken")
                told = len(reader.reasons)
                with contextlib.suppress(AssertionError):
                    wait_until(lambda told=told: len(reader.reasons) > told, 10, "the reader to be told")  # type: ignore[misc]  # bound
                if len(reader.reasons) == told:
                    world.violations.append("I6: trimming overtook a reader that was told nothing")
            traffic.finish()
            world.check(ended=True)
        finally:
            dropping.set()
            dropper.join(10)
        ledger = read(world.evidence(traffic, ended=True))
        wait_until(lambda: _at_the_end(client, reader), 30, "the reader to catch up")
        reader.stop()
        world.violations += judge(reader, ledger, published(world.valkey.directory))
        return Tally.of(world, gaps=len(reader.reasons), restarts=reader.restarts, read=len(reader.heard))


def _drop(world: World, proxy: TcpProxy, stop: threading.Event) -> None:
    while not stop.wait(DROP_SECONDS):
        proxy.cut()
        world.count("dropped")


def _work(world: World, calls: int) -> None:
    wanted = world.mutations() + calls
    wait_until(lambda: world.mutations() >= wanted, 60, "calls to be made")


def _overtaken(client: Any, reader: Reader) -> bool:
    floors = client.mget([floor_key(shard) for shard in range(SHARDS)])
    pairs = zip(floors, reader.positions(), strict=True)
    return any(floor and id_key(position) < id_key(floor.decode()) for floor, position in pairs)


def _at_the_end(client: Any, reader: Reader) -> bool:
    for shard, position in enumerate(reader.positions()):
        last = client.xrevrange(outcomes_key(shard), count=1)
        if last and id_key(position) < id_key(last[0][0].decode()):
            return False
    return True


def published(directory: Path) -> dict[int, dict[str, tuple[str, int]]]:
    """Every entry that any stream ever held, from the store's own history: shard -> id -> turn and revision."""
    found: dict[int, dict[str, tuple[str, int]]] = defaultdict(dict)
    keys = {outcomes_key(shard).encode(): shard for shard in range(SHARDS)}
    for words in aof.commands(directory):
        if len(words) > 3 and words[0].upper() == b"XADD" and words[1] in keys:
            fields = dict(zip(words[3::2], words[4::2], strict=True))
            turn, revision = fields[b"logical_turn_id"].decode(), int(fields[b"mutation_revision"])
            found[keys[words[1]]][words[2].decode()] = (turn, revision)
    return found


def judge(reader: Reader, ledger: Ledger, history: dict[int, dict[str, tuple[str, int]]]) -> list[str]:
    """I6 of one reader: what is missing lies in a gap that it was told of; order per turn; the last word is known."""
    read_ids: dict[int, list[str]] = defaultdict(list)
    for outcome in reader.heard:
        if outcome.stream_id is not None:
            read_ids[outcome.shard].append(outcome.stream_id)
    found = []
    for shard, entries in history.items():
        seen = set(read_ids[shard])
        gaps = [gap for gap in reader.gaps if gap.shard == shard]
        found += [
            f"I6: {stream_id} of shard {shard} was neither read nor in a gap"
            for stream_id in entries
            if stream_id not in seen
            and not any(id_key(gap.after) < id_key(stream_id) <= id_key(gap.upto) for gap in gaps)
        ]
        firsts = list(dict.fromkeys(read_ids[shard]))
        if firsts != sorted(firsts, key=id_key):
            found.append(f"I6: shard {shard} was first read out of order")
    known: dict[str, tuple[int, Any]] = {}
    for outcome in reader.heard:
        if outcome.mutation_revision >= known.get(outcome.mutation_id, (0, None))[0]:
            known[outcome.mutation_id] = (outcome.mutation_revision, outcome.record)
    for mutation, entry in ledger.entries.items():
        if known.get(mutation, (0, None))[1] != entry.outcome():
            found.append(f"I6: the reader's last word on {mutation} is not the ledger's")
    return found
