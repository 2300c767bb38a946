"""Row 1: a worker dies by SIGKILL at each named point of its path."""

from __future__ import annotations

import random
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.faults.boundaries import WORKER
from tests.faults.harness.tally import Tally
from tests.faults.harness.world import World
from tests.support.wait import wait_until

# A late claim is put back: its checkpoint wait is one second here.
LATE = "claim.confirmed:1:sleep=1300"
DIES_WITHIN = 30.0


def kill_at_every_point(folder: Path, seed: int, points: Sequence[str] = WORKER) -> Tally:
    """Row 1. Every point once, in an order and at a time of the seed, two workers at once; judged after each pair."""
    dice = random.Random(seed)
    order = dice.sample(list(points), len(points))
    with World(folder, seed) as world:
        world.start(workers=0)
        traffic = world.traffic(slow=0.1)
        for pair in (order[at : at + 2] for at in range(0, len(order), 2)):
            _kill(world, pair, dice)
            world.check(ended=False)
        world.stack.add_worker()
        traffic.finish(90)
        world.check(ended=True)
        return Tally.of(world)


def _kill(world: World, points: Sequence[str], dice: random.Random) -> None:
    """Starts a worker armed for each point and waits until each has died there."""
    armed: dict[str, subprocess.Popen[bytes]] = {}
    for point in points:
        with world.armed(_fault(point, dice)):
            armed[point] = world.stack.add_worker(wait=False)
    for point, worker in armed.items():
        if point.startswith("release."):
            _stop_warm(world, worker)
        if world.reap(worker, DIES_WITHIN, point):
            world.count("kill -9")
        else:
            world.violations.append(f"harness: no worker came to {point}")


def _fault(point: str, dice: random.Random) -> str:
    if point in ("begin.asked", "putback.asked", "putback.confirmed"):
        return f"{LATE},{point}:1:kill"
    if point.startswith("store.") or point in ("sweep.asked", "claim.asked"):
        return f"{point}:{dice.randrange(20, 120)}:kill"
    rare = ("sweep", "renew", "release", "wake", "propose", "end")
    return f"{point}:{1 if point.startswith(rare) else dice.randrange(1, 6)}:kill"


def _stop_warm(world: World, worker: subprocess.Popen[bytes]) -> None:
    """SIGTERM while it holds sessions with work left, so that there is something to release."""
    wait_until(lambda: worker.poll() is not None or _has_effects(world, worker.pid), 30, "the worker to work")
    if worker.poll() is None:
        worker.send_signal(signal.SIGTERM)


def _has_effects(world: World, pid: int) -> bool:
    return len([effect for effect in world.stack.effects() if effect["pid"] == pid]) >= 3
