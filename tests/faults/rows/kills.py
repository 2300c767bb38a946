"""Row 1: a worker, or the process behind a front door, dies by SIGKILL at each named point of its path."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.faults.boundaries import FRONT_DOOR, WORKER
from tests.faults.harness.tally import Tally
from tests.faults.harness.traffic import Traffic
from tests.faults.harness.world import World
from tests.support.wait import wait_until

AT_A_POINT = "kill -9 at a point"
# A late claim is put back: its checkpoint wait is one second here. Not every claim brings an intent, so several; far
# apart, because those of all shards come together, and to stand still for each of them would take longer than a lease.
LATE = ",".join(f"claim.confirmed:{nth}:sleep=1300" for nth in range(1, 90, 20))
DIE_WITHIN = 75.0
AT_ONCE = 3


def kill_at_every_point(folder: Path, seed: int, points: Sequence[str] = WORKER) -> Tally:
    """Row 1. Every point once, in an order and at a time of the seed, some workers at once; judged after each few."""
    dice = random.Random(seed)
    order = dice.sample(list(points), len(points))
    with World(folder, seed) as world:
        world.start(workers=0)
        traffic = world.traffic(slow=0.1)
        for few in (order[at : at + AT_ONCE] for at in range(0, len(order), AT_ONCE)):
            _kill(world, few, dice)
            world.check(ended=False)
        world.stack.add_worker()
        traffic.finish(90)
        world.check(ended=True)
        return Tally.of(world)


def _kill(world: World, points: Sequence[str], dice: random.Random) -> None:
    """Starts a worker armed for each point and waits until each has died there, in whatever order they come to it."""
    armed: dict[str, subprocess.Popen[bytes]] = {}
    for point in points:
        with world.armed(_fault(point, dice)):
            armed[point] = world.stack.add_worker(wait=False)
    stopped: set[str] = set()

    def all_died() -> bool:
        for point, worker in armed.items():
            # Warm stops while it holds sessions with work left, so that there is something to release.
            if point.startswith("release.") and point not in stopped and _has_effects(world, worker.pid):
                stopped.add(point)
                worker.send_signal(signal.SIGTERM)
        return all(worker.poll() is not None for worker in armed.values())

    with contextlib.suppress(AssertionError):
        wait_until(all_died, DIE_WITHIN, "the armed workers to die")
    for point, worker in armed.items():
        if world.reap(worker):
            world.count(AT_A_POINT)
        else:
            world.violations.append(f"harness: no worker came to {point}")


def _fault(point: str, dice: random.Random) -> str:
    if point in ("begin.asked", "putback.asked", "putback.confirmed"):
        return f"{LATE},{point}:1:kill"
    if point.startswith("store.") or point in ("sweep.asked", "claim.asked"):
        return f"{point}:{dice.randrange(20, 120)}:kill"
    rare = ("sweep", "renew", "release", "wake", "propose", "end")
    return f"{point}:{1 if point.startswith(rare) else dice.randrange(1, 6)}:kill"


def _has_effects(world: World, pid: int) -> bool:
    # Asked all the time: the log is searched, not read.
    file = world.stack.effects_file
    return file.exists() and file.read_bytes().count(f'"pid": {pid},'.encode()) >= 3


def kill_front_doors(folder: Path, seed: int, points: Sequence[str] = FRONT_DOOR, times: int = 4) -> Tally:
    """Row 1 for front doors: beside a sound one there is one that dies at a point, is started again and dies again."""
    dice = random.Random(seed)
    with World(folder, seed) as world:
        world.start(workers=2)
        traffic = world.traffic()
        for point in dice.sample(list(points), len(points)):
            _kill_a_door(world, traffic, point, dice.randrange(1, 3), times)
            world.check(ended=False)
        traffic.finish(90)
        world.check(ended=True)
        return Tally.of(world)


def _kill_a_door(world: World, traffic: Traffic, point: str, nth: int, times: int) -> None:
    with world.armed(f"{point}:{nth}:kill"):
        api = world.stack.add_front_door()
    door = world.stack.front_doors[-1]
    before = world.injected()
    with traffic.also_through(api):
        for number in range(1, times + 1):
            _dies_once_more(world, traffic, point, before + number)
    traffic.resume()
    world.stack.kill_group(door)
    world.stack.kill(door)
    world.count(AT_A_POINT, world.injected() - before)


def _dies_once_more(world: World, traffic: Traffic, point: str, deaths: int) -> None:
    """Waits for the next death; the process is started again by its front door."""
    end = time.monotonic() + DIE_WITHIN
    while point.startswith("wake.") and world.injected() < deaths and time.monotonic() < end:
        _wake_somebody(world, traffic)

    def died() -> bool:
        traffic.require_sound()
        return world.injected() >= deaths

    wait_until(died, max(0.0, end - time.monotonic()), f"another death at {point}")


def _wake_somebody(world: World, traffic: Traffic) -> None:
    """One delivery while every worker is asleep: only then is there somebody to wake."""
    traffic.pause()
    client = world.valkey.client()
    with contextlib.closing(client):
        wait_until(lambda: not client.keys("ml:*:awake"), 30, "claiming to go off")
    number = len(traffic.acks.handed)
    traffic.deliver([("act", {"id": f"w-{number}", "secret": traffic.marker})], session=f"woken-{number}", delivery="d")
