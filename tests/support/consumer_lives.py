"""A consumer process that is killed and started again, and what all its lives wrote down."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from ledger.supervise.child import command_line
from tests.support.publishing import Key

ROOT = Path(__file__).parents[2]


class ConsumerLives:
    """Runs `tests.support.consumer_process` with its cursor and output below `folder`; dies at the end of a `with`."""

    def __init__(self, url: str, folder: Path) -> None:
        self.cursor = folder / "cursor"
        self._output = folder / "output"
        program = [sys.executable, "-m", "tests.support.consumer_process", url, str(self.cursor), str(self._output)]
        self._command = command_line(program)
        self._process: subprocess.Popen[bytes] | None = None
        self.ends: list[int] = []
        """How much had been seen when each life ended."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._end()

    def start(self) -> None:
        """Begins a life."""
        self._process = subprocess.Popen(self._command, cwd=ROOT)

    def kill(self) -> None:
        """SIGKILL, wherever it is."""
        assert self._process is not None
        assert self._process.poll() is None, "the consumer ended by itself"
        self._end()
        self.ends.append(len(self.seen()))

    def seen(self) -> list[Key]:
        """(logical turn, mutation, revision) in the order in which they were handed out."""
        rows = [line.split() for line in self._whole_lines().decode().splitlines()]
        return [(turn, mutation, int(revision)) for turn, mutation, revision in rows]

    def _whole_lines(self) -> bytes:
        """Without the line that is being written: at the end of a page it may be half there."""
        text = self._output.read_bytes() if self._output.exists() else b""
        return text[: text.rfind(b"\n") + 1]

    def _end(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait(10)
        self._process = None
        if self._output.exists():
            # What a kill cut in two was never handed out in full; the next life must not go on in that line.
            os.truncate(self._output, len(self._whole_lines()))
