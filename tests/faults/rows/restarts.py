"""Row 22: workers and front doors are replaced one after the other by SIGTERM while calls are in flight."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from tests.faults.harness.tally import Tally
from tests.faults.harness.traffic import Handed, Traffic
from tests.faults.harness.world import World
from tests.support.stack import Api, Reply
from tests.support.wait import wait_until

DRAIN = 2.0
# Drain, cancel drain and settlement wait (1 s each here), release, and a busy machine.
EXIT_WITHIN = DRAIN + 10.0
# Answered well within the drain, and long after it.
SHORT, LONG = 0.9, 30.0


def rolling_restart(folder: Path, seed: int, rounds: int = 2) -> Tally:
    """Row 22. Every process ends with 0 in time; what was in flight is drained or unknown; callers get answers."""
    dice = random.Random(seed)
    took: dict[str, list[float]] = {"worker": [], "front door": []}
    with World(folder, seed, stop_drain_seconds=DRAIN) as world:
        world.start(doors=2, workers=2)
        traffic = world.traffic(slow=0.2)
        for number in range(rounds):
            for kind in dice.sample(sorted(took), len(took)):
                restart = _restart_worker if kind == "worker" else _restart_door
                took[kind].append(restart(world, traffic, f"t-{kind.replace(' ', '-')}-{number}"))
                world.count(f"SIGTERM {kind}")
                world.check(ended=False)
        traffic.finish()
        world.check(ended=True)
        return Tally.of(world, exit_seconds={kind: max(times) for kind, times in took.items()})


def _restart_worker(world: World, traffic: Traffic, name: str) -> float:
    """One worker goes, with one call that can be drained and one that cannot, and another takes its place."""
    short, long = (_call(traffic, f"{name}-{after}", after) for after in (SHORT, LONG))
    pids = {handed.session: _pid(world, handed) for handed in (short, long)}
    old = next(worker for worker in world.stack.workers if worker.pid == pids[long.session])
    world.stack.workers.remove(old)
    began = time.monotonic()
    old.send_signal(signal.SIGTERM)
    world.stack.add_worker(wait=False)
    seconds = _exits_with_0(world, old, began, "worker")
    statuses = [world.api.ended(handed.run_id, timeout=30)["calls"][0]["status"] for handed in (short, long)]
    if statuses[1] != "outcome_unknown" or (pids[short.session] == old.pid and statuses[0] != "completed"):
        world.violations.append(f"I4: after SIGTERM a short and a long call are {statuses}")
    return seconds


def _call(traffic: Traffic, name: str, after: float) -> Handed:
    call = ("act", {"id": name, "secret": traffic.marker, "after": after})
    handed = traffic.deliver([call], session=name, delivery="d")
    # The front door that was asked may be the one that is being replaced, or slow.
    wait_until(lambda: traffic.hand_in(handed), 30, "an acknowledgement")
    return handed


def _pid(world: World, handed: Handed) -> int:
    (effect,) = wait_until(lambda: world.effects_of(handed.session), 20, "a call in flight")
    pid: int = effect["pid"]
    return pid


def _restart_door(world: World, traffic: Traffic, name: str) -> float:
    """One front door goes while a caller waits for a run there and another follows its journal."""
    old, api = world.stack.front_doors[0], world.apis[0]
    new = world.stack.add_front_door()
    answers: dict[str, Reply | BaseException] = {}
    waiting = [
        threading.Thread(target=_keep, args=(answers, "wait", lambda: _wait(api, name)), daemon=True),
        threading.Thread(target=_keep, args=(answers, "follow", lambda: _follow(world, api, name)), daemon=True),
    ]
    waiting[0].start()
    wait_until(lambda: world.effects_of(name), 20, "the call that a caller waits for")
    waiting[1].start()
    wait_until(lambda: _follows(api), 10, "a caller to follow")
    world.apis[0] = traffic.apis[0] = Api(new.port, new.token, timeout=new.timeout)
    world.api = world.apis[0]
    world.stack.front_doors.remove(old)
    began = time.monotonic()
    old.send_signal(signal.SIGTERM)
    seconds = _exits_with_0(world, old, began, "front door")
    for thread in waiting:
        thread.join(30)
    for what, answer in answers.items():
        if not isinstance(answer, Reply) or answer.status not in (200, 202):
            world.violations.append(f"I8: a caller that had a {what} open at SIGTERM got {answer!r}")
    run = world.api.trigger(name, "d", [("act", {"id": name, "after": SHORT})]).body["run_id"]
    world.api.ended(run, timeout=30)
    return seconds


def _keep(answers: dict[str, Any], what: str, ask: Any) -> None:
    try:
        answers[what] = ask()
    except BaseException as error:  # judged by the row
        answers[what] = error


def _wait(api: Api, name: str) -> Reply:
    return Api(api.port, api.token, timeout=60).trigger(name, "d", [("act", {"id": name, "after": SHORT})], wait=30)


def _follow(world: World, api: Api, name: str) -> Reply:
    run = api.trigger(name, "d", [("act", {"id": name, "after": SHORT})]).body["run_id"]
    return Api(api.port, api.token, timeout=60).get(f"/api/runs/{run}/events?follow=1", Accept="text/event-stream")


def _follows(api: Api) -> bool:
    text: str = api.get("/metrics").body.decode()
    (streams,) = [line for line in text.splitlines() if line.startswith("mutation_ledger_open_streams ")]
    return float(streams.split()[1]) > 0


def _exits_with_0(world: World, process: subprocess.Popen[bytes], began: float, what: str) -> float:
    wait_until(lambda: process.poll() is not None, EXIT_WITHIN, f"a {what} to end")
    if process.returncode != 0:
        world.violations.append(f"I8: after SIGTERM a {what} ends with {process.returncode}")
    return round(time.monotonic() - began, 1)
