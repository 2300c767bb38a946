"""Row 11: the AOF's last write is cut at every byte: it is there in full or not at all, and nothing else is lost."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from ledger.attempts import Begun, Settlement, settle_attempt
from ledger.ownership import claim_sessions
from ledger.states import MutationStatus
from tests.faults.harness.tally import Tally
from tests.support import snapshot
from tests.support.direct import BEGIN, Direct, shard_of
from tests.support.valkey import ValkeyProcess

CALLS = [("act", {"id": "1"}), ("act", {"id": "2"})]
KINDS = ("admit", "begin", "settle")


class Way:
    """One session on its way, step by step."""

    def __init__(self, direct: Direct, session: str) -> None:
        self._direct = direct
        self._session = session
        self._token = ""
        self._begun: Begun | None = None

    def admit(self) -> None:
        """The delivery is on record."""
        self._direct.admit(self._session, "d1", CALLS)

    def begin(self) -> None:
        """Its first intent is on record."""
        shard = shard_of(self._session)
        call = claim_sessions(shard, f"claims-{self._session}", 1, BEGIN, awake=False)
        (claimed,) = self._direct.store.run(call).sessions
        assert isinstance(claimed.work, Begun)
        self._token, self._begun = claimed.token, claimed.work

    def settle(self) -> None:
        """Its first outcome is on record, and its second intent."""
        assert self._begun is not None
        done = Settlement(MutationStatus.COMPLETED)
        shard = shard_of(self._session)
        self._direct.store.run(settle_attempt(shard, self._begun, self._token, done, next_step=2, policy=BEGIN))


def cut_at_every_byte(folder: Path, seed: int, step: int = 1, before_the_end: int = 0) -> Tally:
    """Row 11: every `step`-th byte of each kind of last write, beginning with one that the seed chooses.

    With `before_the_end` also so many bytes before its end.
    """
    tally = Tally(violations=[])
    for number, kind in enumerate(KINDS):
        server = ValkeyProcess(folder / kind)
        with server.serving(), Direct(server.url) as direct:
            # So that the last write is not the one that makes its script known.
            for session in ("warm-up", "torn"):
                way = Way(direct, session)
                before = KINDS if session == "warm-up" else KINDS[:number]
                for done in before:
                    getattr(way, done)()
            client: Any = server.client()
            aof = next((server.directory / "appendonlydir").glob("*.incr.aof"))
            states, size = [_lasting(snapshot.take(client))], aof.stat().st_size
            getattr(way, kind)()
            tally.mutations += 1
            tally.acknowledged += 1
            states.append(_lasting(snapshot.take(client)))
            server.kill9()
        whole = aof.stat().st_size
        tally.figures[kind] = f"{whole - size} bytes"
        for length in sorted({*range(size + seed % step, whole, step), whole - before_the_end, whole}):
            tally.faults["cut"] = tally.faults.get("cut", 0) + 1
            tally.violations += _after_cut(server, folder / "cut", aof, length, size, states)
    return tally


def _lasting(found: snapshot.Snapshot) -> snapshot.Snapshot:
    """Without keys that expire while thousands of copies are looked at."""
    soon = (time.time() + 3 * 3600) * 1000
    return {key: value for key, value in found.items() if value[2] == -1 or value[2] > soon}


def _after_cut(
    server: ValkeyProcess, target: Path, aof: Path, length: int, before: int, states: list[snapshot.Snapshot]
) -> list[str]:
    """Starts a server on a copy whose AOF ends at `length`; it must hold one of the two states."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(server.directory, target)
    with (target / "appendonlydir" / aof.name).open("r+b") as file:
        file.truncate(length)
    copy = ValkeyProcess(target)
    with copy.serving():
        found = _lasting(snapshot.take(copy.client()))
    whole = aof.stat().st_size
    if found not in states:
        return [f"I4: an AOF cut at byte {length - before} of {whole - before} holds half a write"]
    if length == whole and found != states[1]:
        return ["I3: the last write was acknowledged and is gone"]
    return []
