"""Row 16: the wall clocks of worker and store jump forward by a minute and back by an hour."""

from __future__ import annotations

import random
from pathlib import Path

from tests.faults.harness.tally import Tally
from tests.faults.harness.world import World
from tests.support.clock import MovedClock
from tests.support.wait import wait_until

MINUTE, HOUR = 60.0, 3600.0


def move_clocks(folder: Path, seed: int, calls: int = 10) -> Tally:
    """Row 16, in an order of the seed; work goes on after each jump, and no token loses its meaning."""
    dice = random.Random(seed)
    clocks = {"store": MovedClock(folder / "store-clock"), "worker": MovedClock(folder / "worker-clock")}
    with World(folder, seed, env=clocks["store"].env, process_env=clocks["worker"].env) as world:
        world.start(workers=2)
        traffic = world.traffic(slow=0.2)
        waited = {}
        jumps = [(whose, jump) for whose in clocks for jump in (MINUTE, -HOUR)]
        for whose, jump in dice.sample(jumps, len(jumps)):
            _work(world, calls)
            clocks[whose].advance(jump)
            world.count("clock jump")
            # Whoever is on finds work by itself; that a worker comes anew must not change that.
            world.stack.kill(world.stack.workers[0])
            world.stack.add_worker(wait=False)
            _work(world, calls)
            waited[f"{whose} {jump:+.0f} s"] = world.mutations()
            world.check(ended=False)
        traffic.finish(120)
        world.check(ended=True)
        return Tally.of(world)


def _work(world: World, calls: int) -> None:
    wanted = world.mutations() + calls
    wait_until(lambda: world.mutations() >= wanted, 60, "calls to be made")
