"""The processes of one figure: a store for the floor, a store for us, our worker and front door, drivers on them."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from ledger.admission import AdmissionLimits
from ledger.supervise.child import command_line
from tests.bench.contestants import HOME
from tests.bench.drivers import ROOT, Driver, module
from tests.bench.own import limits, own_stack, policy_of
from tests.bench.server import BenchStore
from tests.bench.worker_path import WorkerPath
from tests.support.stack import Api, Stack
from tests.support.valkey import free_port
from tests.support.wait import wait_until


class Scene:
    """Everything is started when it is first asked for, and ended with the scene. Files live under `.bench/run`."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        (HOME / "run").mkdir(parents=True, exist_ok=True)
        self.directory = Path(tempfile.mkdtemp(dir=HOME / "run"))
        self._stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def driver(self, name: str, command: list[str], **options: object) -> Driver:
        """A driver that ends with the scene."""
        made = Driver(name, command, log=self.directory / f"{name}.log", **options)  # type: ignore[arg-type]  # passed on as given
        return self._stack.enter_context(made)

    def store(self, name: str) -> BenchStore:
        """One more durable store."""
        return self._stack.enter_context(BenchStore(self.directory / name))

    def _start(self, name: str, command: list[str]) -> None:
        with (self.directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command_line(command), cwd=ROOT, stdout=log, stderr=log)
        self._stack.callback(_end, process)

    @cached_property
    def own_store(self) -> BenchStore:
        """The store of our stack."""
        return self.store("own")

    @cached_property
    def floor_store(self) -> BenchStore:
        """The store of the floor."""
        return self.store("floor")

    @cached_property
    def floor(self) -> Driver:
        """The raw floor."""
        return self.driver("floor", module("floor", self.floor_store.url))

    @cached_property
    def stack(self) -> Stack:
        """Our processes."""
        return self._stack.enter_context(own_stack(self.directory / "stack", self.own_store))

    @cached_property
    def limits(self) -> AdmissionLimits:
        """Admission limits under the stack's configuration."""
        return limits(policy_of(self.stack.config))

    @cached_property
    def worker_pid(self) -> int:
        """Our one worker process."""
        return self.stack.add_worker().pid

    @cached_property
    def worker_path(self) -> WorkerPath:
        """The worker alone."""
        return WorkerPath(self.own_store, self.worker_pid, self.limits)

    @cached_property
    def submitter(self) -> Driver:
        """A host process that submits and waits."""
        self.worker_pid  # noqa: B018  the worker is there first
        return self.driver("submitter", module("submit", self.own_store.url, str(self.stack.config)))

    @cached_property
    def front_door(self) -> Api:
        """One front door process."""
        self.worker_pid  # noqa: B018  the worker is there first
        return self.stack.add_front_door()

    @cached_property
    def http_clients(self) -> Driver:
        """64 HTTP clients of the front door."""
        return self.driver("http", module("http_load", str(self.front_door.port), "own"))

    @cached_property
    def floor_clients(self) -> Driver:
        """64 HTTP clients of the empty route."""
        port = free_port()
        app = module("floor_app", self.floor_store.url, str(port), str(self.stack.config))
        self._start("floor-app", app)
        wait_until(lambda: _answers(port), 30, "the empty route")
        return self.driver("floor-http", module("http_load", str(port), "floor"))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


def _answers(port: int) -> bool:
    try:
        return Api(port, timeout=2.0).get("/readyz").status == 200
    except OSError:
        return False
