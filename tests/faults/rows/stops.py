"""Rows 2 to 4: a worker sleeps past its lease with calls in flight, or right before one; fifty claim one session."""

from __future__ import annotations

import random
import secrets
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ledger import ownership
from ledger.attempts import BeginPolicy, Begun, Settlement, begin_next, settle_attempt
from ledger.config import RedisConfig
from ledger.errors import Refused
from ledger.states import MutationStatus
from ledger.store import StoreSettings, SyncStore
from tests.faults.harness import aof
from tests.faults.harness.tally import Tally
from tests.faults.harness.world import World, freeze, stopped, thaw
from tests.support.checker import read_ledger
from tests.support.direct import Direct, shard_of
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

BEFORE_DISPATCH = ("begin.confirmed", "dispatch.due", "recheck.due")
CLAIMERS = 50
UNKNOWN = MutationStatus.OUTCOME_UNKNOWN


def stop_past_the_lease(folder: Path, seed: int, rounds: int = 3) -> Tally:
    """Row 2: a worker is frozen with calls in flight until others own its sessions, and goes on then."""
    late = 0
    with World(folder, seed) as world:
        world.start(workers=2)
        traffic = world.traffic(slow=0.5, sessions=8)
        for _ in range(rounds):
            sleeper = world.stack.workers[0]
            sent = wait_until(lambda sleeper=sleeper: _frozen_in_flight(world, sleeper), 60, "calls in flight")  # type: ignore[misc]  # bound
            world.count("SIGSTOP")
            lost = wait_until(lambda sent=sent: _with(world, sent, UNKNOWN), 60, "its calls to become unknown")  # type: ignore[misc]  # bound
            thaw(sleeper)
            wait_until(lambda lost=lost: not _with(world, lost, UNKNOWN), 60, "its late results to be kept")  # type: ignore[misc]  # bound
            late += len(lost)
            world.stack.workers.append(world.stack.workers.pop(0))
            world.check(ended=False)
        traffic.finish()
        world.check(ended=True)
        return Tally.of(world, late_results_kept=late)


def _frozen_in_flight(world: World, worker: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
    """Freezes it and answers calls of its that happened, will succeed and have no outcome yet; lets it go if none."""
    freeze(worker)
    wait_until(lambda: stopped(worker.pid), 10, "the worker to stop")
    lately = [effect for effect in world.stack.effects()[-12:] if effect["pid"] == worker.pid and effect["how"] == "ok"]
    sent = _with(world, lately, MutationStatus.EXECUTION_STARTED)
    if not sent:
        thaw(worker)
    return sent


def _with(world: World, effects: Sequence[dict[str, Any]], status: MutationStatus) -> list[dict[str, Any]]:
    """Those of the effects whose stored status is this."""
    found = read_ledger(world.valkey, {effect["session"] for effect in effects}).entries
    return [effect for effect in effects if found[effect["mutation_id"]].status is status]


def stop_before_dispatch(folder: Path, seed: int, points: Sequence[str] = BEFORE_DISPATCH) -> Tally:
    """Row 3: frozen between intent and dispatch, past the lease or past the deadline; nothing is sent on waking up."""
    dice = random.Random(seed)
    with World(folder, seed, tool_timeout_seconds=1.5) as world:
        world.start(workers=0, read=False)
        traffic = world.traffic(handlers=False)
        traffic.pause()
        for number, point in enumerate(points):
            for past in ("lease", "deadline"):
                _wake_too_late(world, traffic, f"{number}-{past}", point, past, dice)
        traffic.finish()
        world.check(ended=True)
        return Tally.of(world)


def _wake_too_late(world: World, traffic: Any, name: str, point: str, past: str, dice: random.Random) -> None:
    with world.armed(f"{point}:{dice.randrange(1, 4)}:stop"):
        sleeper = world.stack.add_worker()
    handed = [
        traffic.deliver(
            [("act", {"id": f"{name}-{n}", "secret": traffic.marker})], session=f"s-{name}-{n}", delivery="d"
        )
        for n in range(4)
    ]
    wait_until(lambda: stopped(sleeper.pid), 30, f"the worker to stop at {point}")
    world.count("SIGSTOP")
    sent = _sent_by(world, sleeper)
    if past == "lease":
        other = world.stack.add_worker()
        for one in handed:
            world.api.ended(one.run_id, timeout=30)
        world.stack.workers.remove(other)
        other.send_signal(signal.SIGTERM)
        other.wait(20)
    else:
        # Nobody else is there: the lease has ended too by then, but the deadline passes first.
        wait_until(_passed(1.8), 10, "the deadline to pass")
    thaw(sleeper)
    for one in handed:
        world.api.ended(one.run_id, timeout=30)
    late = [effect for effect in _sent_by(world, sleeper) if effect not in sent]
    begun_before = {row["attempt"] for row in late if row["entered"] and row["id"] in _held(world, handed)}
    world.violations += [f"I1: attempt {attempt} was sent after SIGCONT" for attempt in begun_before]
    world.stack.kill(sleeper)


def _passed(seconds: float) -> Any:
    gone = threading.Event()
    threading.Timer(seconds, gone.set).start()
    return gone.is_set


def _sent_by(world: World, worker: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
    return [effect for effect in world.stack.effects() if effect["pid"] == worker.pid]


def _held(world: World, handed: Sequence[Any]) -> set[str]:
    """Ids of calls that were found unknown or not executed: what the sleeper had begun and not sent."""
    ids: set[str] = set()
    for one in handed:
        (call,) = world.api.run(one.run_id)["calls"]
        if call["status"] in ("outcome_unknown", "not_executed"):
            ids.add(one.body["calls"][0]["arguments"]["id"])
    return ids


def fifty_claimers(folder: Path, seed: int, rounds: int = 4) -> Tally:
    """Row 4: fifty claim one session at once; one wins, and nobody else's begin or token is taken."""
    tally = Tally()
    server = ValkeyProcess(folder / "store")
    with server.serving(), Direct(server.url) as direct:
        stores = [SyncStore(StoreSettings(RedisConfig(url=server.url))) for _ in range(CLAIMERS)]
        for store in stores:
            store.open()
        for number in range(rounds):
            session = f"claimed-{seed}-{number}"
            calls = [("act", {"id": f"{number}-{n}"}) for n in range(3)]
            direct.admit(session, "d1", calls, on_error="continue")
            won = _race(stores, shard_of(session), direct.limits.policy_digest)
            tally.faults["claims at once"] = tally.faults.get("claims at once", 0) + CLAIMERS
            tally.mutations += len(won)
            if len(won) != 1:
                tally.violations.append(f"I5: {len(won)} of {CLAIMERS} claimers own {session}")
            tally.violations += _stale(direct, won[0], session)
        for store in stores:
            store.close()
    tally.violations += [f"I5: {line}" for line in aof.owners(server.directory).violations]
    return tally


def _race(stores: Sequence[SyncStore], shard: int, digest: str) -> list[ownership.Claimed]:
    together = threading.Barrier(len(stores))
    won: list[ownership.Claimed] = []

    def claim(store: SyncStore) -> None:
        call = ownership.claim_sessions(shard, secrets.token_hex(8), 4, _policy(digest, 1), awake=False)
        together.wait(20)
        won.extend(store.run(call).sessions)

    threads = [threading.Thread(target=claim, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return won


def _policy(digest: str, lease_ms: int) -> BeginPolicy:
    return BeginPolicy(digest, 60_000, 5_000, lease_ms, 20_000, 86_400_000)


def _stale(direct: Direct, first: ownership.Claimed, session: str) -> list[str]:
    """The winner's lease ends at once; after somebody else got the session, the winner may report but not begin."""
    shard, digest = shard_of(session), direct.limits.policy_digest
    wait_until(
        lambda: direct.store.run(ownership.sweep_shard(shard, 1, interval_ms=1)).reclaimed, 10, "the lease to end"
    )
    call = ownership.claim_sessions(shard, secrets.token_hex(8), 4, _policy(digest, 30_000), awake=False)
    (second,) = direct.store.run(call).sessions
    found: list[str] = []
    try:
        direct.store.run(begin_next(shard, first.sid, first.token, 2, _policy(digest, 1)))
        found.append(f"I5: {first.token} began a call although {second.token} owns the session")
    except Refused as error:
        if error.code != "lease_lost":
            found.append(f"I5: a stale owner was refused with {error.code}")
    assert isinstance(first.work, Begun)
    assert isinstance(second.work, Begun)
    settlement = Settlement(MutationStatus.COMPLETED)
    kept = direct.store.run(
        settle_attempt(shard, first.work, first.token, settlement, next_step=2, policy=_policy(digest, 1))
    )
    if kept.how != "late" or not (kept.work is None or type(kept.work).__name__ == "Nothing"):
        found.append(f"I5: a stale owner's report was {kept.how} and began {kept.work}")
    direct.store.run(
        settle_attempt(shard, second.work, second.token, settlement, next_step=None, policy=_policy(digest, 30_000))
    )
    return found
