"""A store, front doors and workers as real processes, traffic through them, a reader beside, and what they left."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ledger.consumer import CursorGap, FileCursorStore, Outcome, OutcomeConsumer
from ledger.errors import StoreError
from ledger.faultpoints import LOG_VARIABLE, VARIABLE
from tests.faults.harness.invariants import Doubt, Evidence, check_all, no_dispatch_in_doubt, one_call
from tests.faults.harness.traffic import Acknowledged, Traffic
from tests.support.disk import Disk
from tests.support.snapshot import take, values
from tests.support.stack import AGENT, APPROVER, Api, Stack, quick_section
from tests.support.valkey import ValkeyProcess
from tests.support.wait import PATIENCE, wait_until

LEASE = 2.0
# A process that shares its core with many others may take so much longer between a confirmed intent and the call.
LAG = (PATIENCE - 1) / 2
PLUGIN = '[plugins]\nmodules = ["tests.faults.harness.tools"]\n'


class World:
    """One seed's processes. `env` is the store's environment, `timing` goes into the configuration.

    `faults` counts what was done to it, by kind; `violations` is what the checks found so far.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        store: ValkeyProcess | None = None,
        url: str | None = None,
        disk: bool = False,
        env: Mapping[str, str] | None = None,
        process_env: Mapping[str, str] | None = None,
        config: str = "",
        redis: str = "",
        **timing: float,
    ) -> None:
        self.folder = folder
        self.seed = seed
        self.disk = Disk(folder / "disk") if disk else None
        made = {**(env or {}), **(self.disk.env if self.disk else {})}
        self.valkey = store or ValkeyProcess(folder / "store", env=made)
        self._own_store = url is None
        self._url = url
        timing = {"checkpoint_wait_seconds": 1.0, "settlement_wait_seconds": 1.0, **timing}
        text = quick_section(lease=LEASE, linger=0.3, **timing) + PLUGIN + redis + config
        self.fault_log = folder / "faults.log"
        self._process_env = dict(process_env or {})
        self._text = text
        self.faults: dict[str, int] = {}
        self.violations: list[str] = []
        self.doubts: list[Doubt] = []
        self.heard: list[Outcome] = []
        self.gaps = 0
        self.api = Api(0)
        self.apis: list[Api] = []
        self.histories: list[Path] = [self.valkey.directory]
        self.more_effects: Callable[[], list[dict[str, Any]]] = list
        self.on_outcome: Callable[[Outcome], object] = lambda _outcome: None
        self._traffic: list[Traffic] = []
        self._reader: threading.Thread | None = None
        self._stop_reading = threading.Event()

    @property
    def url(self) -> str:
        """The store's address."""
        return self._url or self.valkey.url

    def __enter__(self) -> World:
        if self._own_store:
            self.valkey.start()
        env = {LOG_VARIABLE: str(self.fault_log), **self._process_env}
        self.stack = Stack(self.folder / "stack", self.url, self._text, env=env)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_reading.set()
        for traffic in self._traffic:
            with contextlib.suppress(BaseException):  # what it raised was shown by finish(), or is not the news here
                traffic.stop()
        for process in [*self.stack.workers, *self.stack.front_doors]:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        self.stack.stop()
        if self._reader is not None:
            self._reader.join(10)
        if self._own_store:
            self.valkey.stop()

    def start(self, *, doors: int = 1, workers: int = 1, read: bool = True, through: str | None = None) -> None:
        """Front doors, workers and a reader of the outcomes; the processes reach the store at `through`, if given."""
        self.apis = [self.stack.add_front_door(store_url=through) for _ in range(doors)]
        self.api = self.apis[0]
        for _ in range(workers):
            self.stack.add_worker(store_url=through)
        if read:
            self.read()

    def read(self) -> None:
        """Begins to read the outcomes."""
        self._reader = threading.Thread(target=self._read, name="reader", daemon=True)
        self._reader.start()

    def traffic(self, **options: Any) -> Traffic:
        """Traffic through every front door, begun."""
        made = Traffic(self.apis, self.seed, **options)
        self._traffic.append(made)
        return made.start()

    @contextlib.contextmanager
    def armed(self, fault: str) -> Iterator[None]:
        """Processes started inside are armed."""
        self.stack.env[VARIABLE] = fault
        try:
            yield
        finally:
            del self.stack.env[VARIABLE]

    def count(self, kind: str, times: int = 1) -> None:
        """Notes that something was done to the world."""
        self.faults[kind] = self.faults.get(kind, 0) + times

    def injected(self) -> int:
        """How many armed points went off, in every process."""
        return len(self.fault_log.read_text().splitlines()) if self.fault_log.exists() else 0

    @contextlib.contextmanager
    def doubt(self, *, grace: float) -> Iterator[None]:
        """The store cannot promise inside the block; `grace` seconds are what a call under way may take to begin."""
        start = time.monotonic() + grace + LAG
        yield
        self.doubts.append(Doubt(start, time.monotonic()))

    def lose_power(self) -> None:
        """The store dies, its disk keeps what was synced and nothing else, and it starts again from that."""
        assert self.disk is not None
        self.valkey.kill9()
        self.count("power loss")
        folder, kept = self.valkey.directory, self.folder / f"lost-{self.faults['power loss']}"
        target = self.folder / "cut"
        self.disk.cut(folder, target)
        folder.rename(kept)
        target.rename(folder)
        shutil.rmtree(kept)
        self.disk.keep(folder)
        self.valkey.start()

    def move_to(self, server: ValkeyProcess) -> None:
        """From now on the store is another server: its history is the one to be judged."""
        self._url = server.url
        self.histories = [server.directory]

    def judge_effects(self) -> None:
        """I1 and I8 alone, for a store that lost what it knew."""
        evidence = Evidence(self.url, self.stack.effects(), Acknowledged(), doubts=tuple(self.doubts))
        self.violations += [*one_call(evidence), *no_dispatch_in_doubt(evidence)]

    def reap(self, process: subprocess.Popen[bytes]) -> bool:
        """Forgets a worker, and ends it if need be; whether it had died of its armed fault."""
        died = process.poll() == -signal.SIGKILL
        if process.poll() is None:
            self.stack.kill(process)
        self.stack.workers = [other for other in self.stack.workers if other is not process]
        return died

    def check(self, *, ended: bool, traffic: Sequence[Traffic] | None = None) -> None:
        """Holds the evidence against the invariants; what is wrong goes into `violations`."""
        for one in traffic if traffic is not None else self._traffic:
            self.violations += check_all(self.evidence(one, ended=ended), ended=ended)

    def evidence(self, traffic: Traffic, *, ended: bool) -> Evidence:
        """Everything there is to judge by. Texts, and what the reader saw, count only at the end."""
        if self._reader is not None and ended:
            self.catch_up()
        return Evidence(
            url=self.url,
            effects=[effect for effect in self.effects() if effect["session"] in set(traffic.acks.sessions)],
            acks=traffic.acks.copy(),
            heard=tuple(self.heard),
            gaps=self.gaps,
            doubts=tuple(self.doubts),
            histories=self.histories,
            texts=self.texts() if ended else {},
            secrets=(traffic.marker, AGENT, APPROVER),
        )

    def texts(self) -> dict[str, str]:
        """Logs, metrics and RQ's keys, by name."""
        found = {path.name: path.read_text(errors="replace") for path in self.stack.directory.glob("*.log")}
        for api in self.apis:
            with contextlib.suppress(OSError):
                found[f"metrics of {api.port}"] = api.get("/metrics").body.decode()
        if self.valkey.running:
            keys = take(self.valkey.client(), "{rq}*")
            found["RQ"] = b"\n".join(value for _, value in values(keys)).decode("latin-1")
        return found

    def mutations(self) -> int:
        """How many calls the tools saw; asked so often that the log's lines are counted, not read."""
        file = self.stack.effects_file
        return (file.read_bytes().count(b"\n") if file.exists() else 0) + len(self.more_effects())

    def effects_of(self, session: str) -> list[dict[str, Any]]:
        """The calls that tools saw for one session."""
        return [effect for effect in self.effects() if effect["session"] == session]

    def effects(self) -> list[dict[str, Any]]:
        """Every call that any tool saw; `more_effects` are those of tools with a log of their own."""
        return [*self.stack.effects(), *self.more_effects()]

    def acknowledged(self) -> int:
        """Answers that said that something is on record."""
        return sum(traffic.acks.promises for traffic in self._traffic)

    def catch_up(self) -> None:
        """Waits until the reader has nothing more to read for a moment."""
        seen = -1

        def quiet() -> bool:
            nonlocal seen
            before, seen = seen, len(self.heard)
            time.sleep(0.25)
            return before == seen == len(self.heard)

        wait_until(quiet, 30, "the reader to catch up")

    def _read(self) -> None:
        cursors = FileCursorStore(self.folder / "reader.cursor")
        while not self._stop_reading.is_set():
            # Anew after every trouble, as a reader that is restarted goes on from its saved cursor.
            with OutcomeConsumer(self.url, cursors, block_seconds=0.2) as consumer, contextlib.suppress(StoreError):
                try:
                    self._follow(consumer.outcomes())
                except CursorGap:
                    self.gaps += 1
                    self._follow(consumer.resync())
            self._stop_reading.wait(0.1)

    def _follow(self, feed: Iterable[Outcome]) -> None:
        for outcome in feed:
            self.heard.append(outcome)
            self.on_outcome(outcome)
            if self._stop_reading.is_set():
                return


def alive(process: subprocess.Popen[bytes]) -> bool:
    """Whether it still runs."""
    return process.poll() is None


def stopped(pid: int) -> bool:
    """Whether every thread of a process is frozen by SIGSTOP: the signal only begins it."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)
    except FileNotFoundError:
        return False


def freeze(process: subprocess.Popen[bytes]) -> None:
    """SIGSTOP."""
    os.kill(process.pid, signal.SIGSTOP)


def thaw(process: subprocess.Popen[bytes]) -> None:
    """SIGCONT."""
    os.kill(process.pid, signal.SIGCONT)
