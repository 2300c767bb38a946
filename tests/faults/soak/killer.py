"""What is killed during the soak, and how long until nothing is missing any more."""

from __future__ import annotations

import random
import subprocess
import time
from typing import Any

import redis

from tests.faults.harness.world import World
from tests.faults.soak.load import Door, Load
from tests.support.audit import pid_of
from tests.support.checker import SHARDS
from tests.support.wait import wait_until

KINDS = ("worker", "worker", "worker", "front door", "store")
PATIENCE = 60.0


class Killer:
    """Kills one thing after another. The first worker and the first front door are spared, so that they can be watched.

    Everything is started by the thread that calls it: a child dies with the thread that started it.
    """

    def __init__(self, world: World, load: Load, seed: int) -> None:
        self.world = world
        self.load = load
        self.recovered: dict[str, list[float]] = {kind: [] for kind in dict.fromkeys(KINDS)}
        self._dice = random.Random(f"killer-{seed}")
        self._kinds = self._order()

    def kill(self) -> None:
        """The next one; returns when it was replaced and work goes on."""
        kind = next(self._kinds)
        seconds = {"worker": self._kill_worker, "front door": self._kill_door, "store": self._kill_store}[kind]()
        self.recovered[kind].append(round(seconds, 2))
        self.world.count(f"kill -9 {kind}")

    def _order(self) -> Any:
        # Every kind once before any comes again, so that a short soak has them all.
        yield from self._dice.sample(("worker", "front door", "store"), 3)
        while True:
            yield self._dice.choice(KINDS)

    def _kill_worker(self) -> float:
        """Until nothing is in its hands any more: what it had begun has an outcome, the rest another owner."""
        victim = self._dice.choice(self.world.stack.workers[1:])
        began = time.monotonic()
        self.world.stack.kill(victim)
        self.world.stack.add_worker(wait=False)
        client: Any = self.world.valkey.client()
        wait_until(lambda: not _held_by(client, victim), PATIENCE, "the sessions of a dead worker to be free")
        free = time.monotonic() - began
        return max(free, self._goes_on(began))

    def _kill_door(self) -> float:
        """Until somebody is admitted again, by the other front door or by the one that takes its place."""
        at = self._dice.randrange(1, len(self.load.doors))
        victim: subprocess.Popen[bytes] = self.world.stack.front_doors[at]
        began = time.monotonic()
        self.world.stack.kill_group(victim)
        victim.wait(10)
        self.world.stack.front_doors.remove(victim)
        del self.world.apis[at]
        # Threads may be asking it just now, and their connection end with it.
        self.load.doors.pop(at).close()
        seconds = self._goes_on(began)
        api = self.world.stack.add_front_door()
        self.world.apis.append(api)
        self.load.doors.append(Door(api.port))
        return seconds

    def _kill_store(self) -> float:
        """Until calls are made and deliveries admitted again; the store is started anew at once."""
        began = time.monotonic()
        self.world.valkey.kill9()
        self.world.valkey.start(60)
        return self._goes_on(began)

    def _goes_on(self, killed_at: float) -> float:
        """Seconds from the kill until a delivery was admitted and an outcome published that came after it."""
        heard = self.load.heard
        wait_until(
            lambda: (
                self.load.over
                or ((self.load.last_admission > killed_at or self.load.all_admitted) and self.load.heard > heard)
            ),
            PATIENCE,
            "work to go on after a kill",
        )
        return time.monotonic() - killed_at


def _held_by(client: Any, victim: subprocess.Popen[bytes]) -> bool:
    """Whether a session is owned by that process."""
    try:
        return any(pid_of(token) == victim.pid for token in _owners(client))
    except redis.RedisError:
        return True


def _owners(client: Any) -> list[str]:
    prefixes = [f"ml:{{{shard:02x}}}:" for shard in range(SHARDS)]
    pipe = client.pipeline(transaction=False)
    for prefix in prefixes:
        pipe.zrange(f"{prefix}owned", 0, -1)
    ask = client.pipeline(transaction=False)
    for prefix, sids in zip(prefixes, pipe.execute(), strict=True):
        for sid in sids:
            ask.hget(f"{prefix}session:{sid.decode()}", "o")
    return [token.decode() for token in ask.execute() if token]
