"""One soak from start to verdict."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.harness.invariants import Evidence
from tests.faults.harness.world import World, alive
from tests.faults.soak import gauges, judging
from tests.faults.soak.gauges import Sample
from tests.faults.soak.killer import Killer
from tests.faults.soak.load import Door, Load
from tests.faults.soak.report import Report, judge_figures
from tests.support.stack import AGENT, APPROVER
from tests.support.wait import wait_until

SAMPLE_SECONDS = 1.0
PROGRESS_SECONDS = 10.0
# An AOF that is rewritten in the middle would lose the history that I5 is judged by.
STORE_SETTINGS = {"auto-aof-rewrite-percentage": "0"}


@dataclass(frozen=True)
class Options:
    """How much, and how often something is killed (seconds, from and to). `flat`: long enough to judge flatness."""

    sessions: int = 10_000
    mutations: int = 100_000
    at_once: int = 48
    workers: int = 3
    doors: int = 2
    pause: tuple[float, float] = (5.0, 20.0)
    seed: int = 1
    hours: float = 3.0
    flat: bool = True


def soak(folder: Path, options: Options, say: Callable[[str], object] = lambda _line: None) -> Report:
    """Runs it; whatever is wrong is in the report's violations."""
    with World(folder, options.seed) as world:
        world.valkey.settings.update(STORE_SETTINGS)
        world.valkey.restart()
        world.start(doors=options.doors, workers=options.workers, read=False)
        each = options.mutations // options.sessions
        doors = [Door(api.port) for api in world.apis]
        load = Load(doors, options.seed, sessions=options.sessions, each=each, at_once=options.at_once)
        world.on_outcome = load.hear
        world.read()
        killer = Killer(world, load, options.seed)
        samples = _Samples(world, load)
        began = time.monotonic()
        for part in (load, samples):
            part.start()
        try:
            _watch(load, killer, samples, options, say)
        finally:
            samples.stop()
            load.stop()
        seconds = time.monotonic() - began
        say(f"{load.admitted:,} mutations in {seconds:.0f} s; judging")
        report = Report(load.admitted, seconds, dict(world.faults), killer.recovered)
        _judge(world, load, report)
        judge_figures(samples.taken, options.mutations, flat=options.flat, report=report)
        return report


class _Samples:
    """Looks every second."""

    def __init__(self, world: World, load: Load) -> None:
        self.taken: list[Sample] = []
        self._world = world
        self._load = load
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gauges", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends."""
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        client = self._world.valkey.client()
        worker, door = self._world.stack.workers[0], self._world.stack.front_doors[0]
        while not self._stop.wait(SAMPLE_SECONDS):
            if self._world.valkey.running and alive(worker) and alive(door):
                seen = gauges.look(client, self._load.heard, worker.pid, door.pid, self._world.valkey.pid)
                if seen is not None:
                    self.taken.append(seen)


def _watch(load: Load, killer: Killer, samples: _Samples, options: Options, say: Callable[[str], object]) -> None:
    """Kills something now and then until the load has ended, and tells how it goes."""
    dice = random.Random(f"pauses-{options.seed}")
    began = time.monotonic()
    end, next_word, next_kill = began + options.hours * 3600, began + PROGRESS_SECONDS, began
    while not load.over:
        next_kill += dice.uniform(*options.pause)
        wait_until(lambda due=next_kill: load.over or time.monotonic() >= due, 120, "the next kill to be due")  # type: ignore[misc]  # bound
        now = time.monotonic()
        if now >= next_word and samples.taken:
            next_word = now + PROGRESS_SECONDS
            say(_progress(load, killer, samples.taken[-1], now - began))
        if now >= end:
            raise AssertionError(f"only {load.finished} of {options.sessions} sessions were done in time")
        if not load.all_admitted:
            killer.kill()
            next_kill = max(next_kill, time.monotonic())


def _progress(load: Load, killer: Killer, last: Sample, seconds: float) -> str:
    kills = sum(map(len, killer.recovered.values()))
    return (
        f"{seconds:5.0f} s  {load.admitted:7,} of {load.sessions * load.each:,} mutations, "
        f"{load.admitted / seconds:.0f}/s, {kills} kills, worker {last.worker_bytes >> 20} MB and "
        f"{last.worker_files} files, door {last.door_bytes >> 20} MB and {last.door_files}, "
        f"store {last.store_bytes >> 20} MB, oldest in the queue {last.queue_age:.1f} s"
    )


def _judge(world: World, load: Load, report: Report) -> None:
    wait_until(lambda: world.api.get("/readyz").status == 200, 30, "the front door to be ready")
    world.catch_up()
    evidence = Evidence(
        url=world.url,
        effects=world.effects(),
        acks=load.acks,
        heard=tuple(world.heard),
        gaps=world.gaps,
        histories=world.histories,
        texts=world.texts(),
        secrets=(load.marker, AGENT, APPROVER),
    )
    report.violations += judging.judge(evidence)
    report.figures["calls that tools saw"] = len(evidence.effects)
    report.figures["outcomes read"] = len(world.heard)
