"""A wall clock that a test moves: a C shim preloaded into a server, reading an offset from a shared file."""

from __future__ import annotations

import mmap
import struct
import subprocess
from pathlib import Path

from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

SOURCE = Path(__file__).with_name("clock_shim.c")


class MovedClock:
    """The clock of every process started with `env`; it begins at the real time and runs at its pace."""

    def __init__(self, directory: Path) -> None:
        """Compiles the shim into `directory`; needs a C compiler."""
        directory.mkdir(parents=True, exist_ok=True)
        library, self._path = directory / "clock_shim.so", directory / "clock-offset"
        command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self._path.write_bytes(struct.pack("<q", 0))
        self._moved = 0
        self.env = {"LD_PRELOAD": str(library), "CLOCK_OFFSET_FILE": str(self._path)}

    def advance(self, seconds: float, server: ValkeyProcess | None = None) -> None:
        """Moves the clock forward, or back if negative; returns when `server`, which keeps times a moment, sees it."""
        before = _time(server) if server else 0.0
        self._moved += round(seconds * 1_000_000_000)
        with self._path.open("r+b") as file, mmap.mmap(file.fileno(), 8) as shared:
            shared[:] = struct.pack("<q", self._moved)
        if server is not None:
            wait_until(lambda: abs(_time(server) - before - seconds) < 5.0, 5, "the server to see the new time")


def _time(server: ValkeyProcess) -> float:
    client = server.client()
    seconds, micros = client.time()
    client.close()
    return float(seconds) + float(micros) / 1e6
