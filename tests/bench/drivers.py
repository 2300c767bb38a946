"""Processes under measurement, driven by JSON lines (`protocol.py`)."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ledger.supervise.child import command_line

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0
ANSWER_SECONDS = 180.0


class DriverFailed(Exception):
    """A measured process died or did not answer; one line."""


@dataclass(frozen=True, slots=True)
class Slice:
    """One measured stretch."""

    count: int
    seconds: float
    p50_ms: float
    p99_ms: float

    @property
    def rate(self) -> float:
        """Units a second."""
        return self.count / self.seconds


class Driver:
    """A child process that runs units when asked. It dies with this process."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        start_seconds: float = START_SECONDS,
    ) -> None:
        self.name = name
        self._command = list(command)
        self._env = {**os.environ, **(env or {})}
        self._log = log
        self._cwd = cwd
        self._start_seconds = start_seconds

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command_line(self._command),
                cwd=self._cwd,
                env=self._env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        try:
            self._read(self._start_seconds)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def load(self, count: int, flight: int = 64) -> Slice:
        """Runs `count` units, `flight` at a time."""
        return self._slice({"op": "load", "count": count, "flight": flight})

    def lone(self, count: int, gap_ms: float = 20.0) -> Slice:
        """Runs `count` units one by one on an otherwise idle stack."""
        return self._slice({"op": "lone", "count": count, "gap_ms": gap_ms})

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Any request."""
        stdin = self._process.stdin
        if stdin is None:
            raise DriverFailed(f"{self.name} was not started")
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        except OSError:
            raise DriverFailed(f"{self.name} died: {self._last_words()}") from None
        return self._read(ANSWER_SECONDS)

    def _slice(self, request: dict[str, Any]) -> Slice:
        found = self.ask(request)
        return Slice(found["count"], found["seconds"], found["p50_ms"], found["p99_ms"])

    def _read(self, seconds: float) -> dict[str, Any]:
        stdout = self._process.stdout
        if stdout is None or not select.select([stdout], [], [], seconds)[0]:
            raise DriverFailed(f"{self.name} did not answer within {seconds:g} s: {self._last_words()}")
        line = stdout.readline()
        if not line:
            raise DriverFailed(f"{self.name} ended: {self._last_words()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"

    def _end(self) -> None:
        process = self._process
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        # It ends its own children first; what is left dies with it.
        with suppress(subprocess.TimeoutExpired):
            process.wait(8)
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


def module(name: str, *arguments: str) -> list[str]:
    """The command of one of our own scripts."""
    return [sys.executable, "-m", f"tests.bench.{name}", *arguments]
