"""Rows 12 to 14: replies are lost, nothing passes for a while, a connection ends between a write and its WAITAOF."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Sequence
from pathlib import Path

from tests.faults.harness.tally import Tally
from tests.faults.harness.traffic import Traffic
from tests.faults.harness.world import LEASE, World
from tests.support.proxy import TcpProxy
from tests.support.scripted import marker, preload
from tests.support.wait import wait_until

# Scripts that processes send while deliveries are on their way, with what must be in the reply to be lost.
SCRIPTS = {
    "admit_delivery": b"",
    "decide_approval": b"",
    # The lease length is part of every owner token.
    "claim_sessions": f"x{round(LEASE * 1000):x}x".encode(),
    "settle_attempt": b"",
    "propose_call": b"",
    "watch_handlers": b"",
    "end_handler": b"",
    "renew_leases": b"",
    "sweep_shard": b"",
}
BREAKS = 8
AOF = b"*4\r\n$7\r\nWAITAOF"


def lose_replies(folder: Path, seed: int, rounds: int = 2, scripts: Sequence[str] = tuple(SCRIPTS)) -> Tally:
    """Row 12: replies are lost after their script ran, each as often and in an order of the seed, in traffic."""
    dice = random.Random(seed)
    with World(folder, seed) as world, TcpProxy(world.valkey.port) as proxy:
        world.start(workers=2, through=proxy.url)
        traffic = world.traffic(slow=0.1)
        for script in scripts:
            preload(world.valkey, script)
        for script in dice.sample(list(scripts) * rounds, len(scripts) * rounds):
            _lose_one(proxy, traffic, script)
            world.count("reply lost")
        world.check(ended=False)
        traffic.finish()
        world.check(ended=True)
        return Tally.of(world)


def _lose_one(proxy: TcpProxy, traffic: Traffic, script: str) -> None:
    """Waits until a reply is lost, with breaks in the traffic: who is never idle neither claims nor falls asleep."""
    lost = proxy.lost
    proxy.lose_reply(marker(script), saying=SCRIPTS[script])
    for change in (traffic.pause, traffic.resume) * BREAKS:
        with contextlib.suppress(AssertionError):
            wait_until(lambda: proxy.lost > lost, 4, "a reply to be lost")
            break
        traffic.require_sound()
        change()
    traffic.resume()
    assert proxy.lost > lost, f"no reply to {script} was lost"


def black_hole(folder: Path, seed: int, seconds: float = 30.0, rounds: int = 1) -> Tally:
    """Row 13: nothing passes between the store and anybody for a while; 503, no dispatch, and recovery by itself."""
    with World(folder, seed) as world, TcpProxy(world.valkey.port) as proxy:
        world.start(workers=2, through=proxy.url)
        traffic = world.traffic()
        recovered = []
        for _ in range(rounds):
            wanted = world.mutations() + 15
            wait_until(lambda wanted=wanted: world.mutations() >= wanted, 60, "calls to be made")  # type: ignore[misc]  # bound
            with proxy.black_hole():
                world.count("black hole")
                end = time.monotonic() + seconds
                # Sent on what was confirmed before, at most; the lease of what a worker holds ends meanwhile.
                with world.doubt(grace=1.0):
                    reply = world.api.get("/readyz")
                    if reply.status != 503 or "Retry-After" not in reply.headers:
                        world.violations.append(f"I8: a front door in a black hole answers {reply}")
                    wait_until(lambda end=end: time.monotonic() >= end, seconds + 5, "the black hole to end")  # type: ignore[misc]  # bound
            began, wanted = time.monotonic(), world.mutations() + 1
            wait_until(lambda wanted=wanted: world.mutations() >= wanted, 40, "calls to be made again")  # type: ignore[misc]  # bound
            recovered.append(round(time.monotonic() - began, 2))
            world.check(ended=False)
        traffic.finish(90)
        world.check(ended=True)
        return Tally.of(world, recovery_seconds=recovered)


def swap_connections(folder: Path, seed: int, rounds: int = 12) -> Tally:
    """Row 14: the connection ends between a write and its WAITAOF, by a cut or by CLIENT KILL: not confirmed."""
    dice = random.Random(seed)
    with World(folder, seed) as world, TcpProxy(world.valkey.port) as proxy:
        world.start(workers=2, through=proxy.url)
        traffic = world.traffic()
        client = world.valkey.client()
        for number in range(rounds):
            wanted, lost = world.mutations() + dice.randrange(1, 6), proxy.lost
            wait_until(lambda wanted=wanted: world.mutations() >= wanted, 60, "calls to be made")  # type: ignore[misc]  # bound
            if number % 2:
                proxy.cut_request(AOF)
                wait_until(lambda lost=lost: proxy.lost > lost, 30, "a WAITAOF to be cut off")  # type: ignore[misc]  # bound
            else:
                client.client_kill_filter(_type="normal", skipme=True)
            world.count("connection swapped")
        traffic.finish()
        world.check(ended=True)
        return Tally.of(world)
