"""Row 25: records that a newer version wrote, under running processes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from ledger.identity import session_hash
from ledger.ids import shard_of_session
from ledger.store.codec import FORMAT
from tests.faults.harness.tally import Tally
from tests.faults.harness.traffic import Handed, Traffic
from tests.faults.harness.world import World, alive
from tests.support.checker import SHARDS, TENANT
from tests.support.stack import APPROVER
from tests.support.wait import wait_until

NEWER = bytes([FORMAT[0] + 1])
RECORDS = ("session", "run", "run's state", "call", "approval")


def newer_records(folder: Path, seed: int, kinds: tuple[str, ...] = RECORDS) -> Tally:
    """Row 25. Each kind of record in turn: 503 `format_too_new`, no dispatch, nobody else held up; later it goes on."""
    dice = random.Random(seed)
    with World(folder, seed) as world:
        world.start(workers=2)
        traffic = world.traffic()
        for number, kind in enumerate(dice.sample(kinds, len(kinds))):
            traffic.hold_decisions()
            session = f"t-newer-{number}"
            calls = [("ask_act", {"id": f"{session}-{n}", "secret": traffic.marker}) for n in range(2)]
            handed = traffic.deliver(calls, session=session, delivery=f"d-{number}")
            world.count(f"newer {kind}")
            with _Newer(world, handed, kind):
                _is_refused(world, handed, kind)
                _others_go_on(world)
            traffic.release_decisions()
            wait_until(lambda handed=handed: _ended(world, handed), 30, f"the run with a {kind} that was newer")  # type: ignore[misc]  # bound
        _in_flight(world, traffic)
        traffic.finish()
        world.check(ended=True)
        return Tally.of(world)


class _Newer:
    """Inside the block one record of the delivery is one that a newer version wrote."""

    def __init__(self, world: World, handed: Handed, kind: str) -> None:
        self._client: Any = world.valkey.client()
        sid = session_hash(TENANT, handed.session)
        prefix = f"ml:{{{shard_of_session(sid, SHARDS):02x}}}:"
        self._key, self._field = {
            "session": (f"{prefix}session:{sid}", "meta"),
            "in flight": (f"{prefix}session:{sid}", "c"),
            "run": (f"{prefix}run:{handed.run_id}", "m"),
            "run's state": (f"{prefix}run:{handed.run_id}", "s"),
            "call": (f"{prefix}run:{handed.run_id}", "0"),
            "approval": (f"{prefix}approval:{_approval(world, handed)}", "a"),
        }[kind]

    def __enter__(self) -> None:
        stored = self._client.hget(self._key, self._field)
        self._client.hset(self._key, self._field, NEWER + stored[1:])

    def __exit__(self, *_: object) -> None:
        stored = self._client.hget(self._key, self._field)
        self._client.hset(self._key, self._field, FORMAT + stored[1:])


def _approval(world: World, handed: Handed) -> str:
    calls = world.api.run(handed.run_id)["calls"]
    return str(calls[0]["approval_id"])


def _is_refused(world: World, handed: Handed, kind: str) -> None:
    """Whoever must read the record is told so, with a time to come back, by every front door."""
    approver = world.api.as_(APPROVER)
    asked = {"run": (world.api, f"/api/runs/{handed.run_id}"), "inbox": (approver, "/api/approvals")}
    for what, (api, path) in asked.items():
        if (what == "run" and kind == "approval") or (what == "inbox" and kind in ("call", "run's state")):
            continue
        reply = api.get(path)
        if (reply.status, reply.body.get("code")) != (503, "format_too_new") or "Retry-After" not in reply.headers:
            world.violations.append(f"I8: the {what} with a newer {kind} is answered {reply.status} {reply.body}")
    if world.effects_of(handed.session):
        world.violations.append(f"I8: a call was made although its {kind} cannot be read")


def _others_go_on(world: World) -> None:
    wanted = world.mutations() + 8
    wait_until(lambda: world.mutations() >= wanted, 30, "other sessions to be worked on")
    for process in (*world.stack.workers, *world.stack.front_doors):
        if not alive(process):
            world.violations.append("I8: a process died of a newer record")


def _in_flight(world: World, traffic: Traffic) -> None:
    """The record of a call in flight: its outcome cannot be stored; once it can be read, the call is unknown."""
    traffic.pause()
    call = ("act", {"id": "t-newer-flight", "secret": traffic.marker, "after": 0.8})
    handed = traffic.deliver([call], session="t-newer-flight", delivery="d")
    wait_until(lambda: world.effects_of(handed.session), 20, "the call to be in flight")
    world.count("newer in flight")
    with _Newer(world, handed, "run's state"):
        traffic.resume()
        _others_go_on(world)
    wait_until(lambda: _ended(world, handed), 30, "the run whose outcome could not be stored")


def _ended(world: World, handed: Handed) -> bool:
    reply = world.api.get(f"/api/runs/{handed.run_id}")
    return reply.status == 200 and reply.body["status"] in ("completed", "failed")
