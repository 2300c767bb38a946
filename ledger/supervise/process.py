"""One supervised command."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Protocol

from ledger.supervise.child import command_line


class Child(Protocol):
    """What the supervisor needs of a thing that runs. `stop_seconds` bound a clean end."""

    @property
    def name(self) -> str:
        """How messages call it."""

    @property
    def stop_seconds(self) -> float:
        """Seconds from `terminate` until it is killed."""

    def launch(self) -> None:
        """Start it, or start it again; returns without waiting. Raises LedgerError or OSError."""

    def exit_code(self) -> int | None:
        """None while it runs; else its exit status, negative for a signal."""

    def terminate(self) -> None:
        """Ask it to end cleanly."""

    def kill(self) -> None:
        """End it at once."""

    def hung(self) -> bool:
        """Whether it runs but has been silent for so long that it must be started anew."""


class ProcessChild:
    """A command that dies with this process. It gets no terminal signals: the supervisor orders the stop."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stop_seconds: float = 10,
    ) -> None:
        self.name = name
        self.stop_seconds = stop_seconds
        self._command = list(command)
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the last start, or None before it."""
        return self._process.pid if self._process is not None else None

    def launch(self) -> None:
        """Start the command. Raises OSError if the system cannot."""
        self._process = subprocess.Popen(  # noqa: S603  a list from our own code, no shell
            command_line(self._command), env=self._env, stdin=subprocess.DEVNULL, start_new_session=True
        )

    def exit_code(self) -> int | None:
        """None while it runs; else its exit status, negative for a signal."""
        return self._process.poll() if self._process is not None else 0

    def terminate(self) -> None:
        """SIGTERM."""
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        """SIGKILL, and collect the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def hung(self) -> bool:
        """Never: front doors and workers have their own watch over themselves."""
        return False
