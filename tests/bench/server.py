"""A durable Valkey for one figure, and what it says it did: commands, script time, memory, fsyncs."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ledger.embedded.settings import environment
from tests.support.valkey import ValkeyProcess

SOURCE = Path(__file__).with_name("fsync_count.c")
# A rewrite in the middle of a slice would be charged to whoever runs then.
SCRIPTS = ("evalsha", "eval", "fcall")
NO_REWRITE = {"auto-aof-rewrite-percentage": "0"}


@dataclass(frozen=True, slots=True)
class Counters:
    """What a store did up to now. `fsyncs` None: they could not be counted."""

    calls: dict[str, int]
    usec: dict[str, int]
    fsyncs: int | None
    cpu_seconds: float

    def since(self, before: Counters) -> Counters:
        """The difference to an earlier reading."""
        fsyncs = None if self.fsyncs is None or before.fsyncs is None else self.fsyncs - before.fsyncs
        return Counters(
            {name: n - before.calls.get(name, 0) for name, n in self.calls.items() if n > before.calls.get(name, 0)},
            {name: n - before.usec.get(name, 0) for name, n in self.usec.items()},
            fsyncs,
            self.cpu_seconds - before.cpu_seconds,
        )

    @property
    def scripts(self) -> int:
        """Calls of scripts and functions."""
        return sum(self.calls.get(name, 0) for name in SCRIPTS)

    @property
    def script_usec(self) -> int:
        """Microseconds inside scripts."""
        return sum(self.usec.get(name, 0) for name in SCRIPTS)


class BenchStore:
    """One server on loopback with `appendonly yes` and `appendfsync always`; its files are deleted at the end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._count = directory / "fsyncs"
        self._count.write_bytes(bytes(8))
        library = counting_library(directory.parent)
        env = environment({"LD_PRELOAD": str(library), "FSYNC_COUNT": str(self._count)} if library else {})
        self._counts = library is not None
        self.process = ValkeyProcess(directory / "store", settings=NO_REWRITE, env=env)

    def __enter__(self) -> Self:
        self.process.start()
        self.client: Any = self.process.client()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def url(self) -> str:
        """The store's address."""
        return self.process.url

    def counters(self) -> Counters:
        """What it did since it started."""
        stats = self.client.info("commandstats")
        cpu = self.client.info("cpu")
        return Counters(
            {name.removeprefix("cmdstat_"): row["calls"] for name, row in stats.items()},
            {name.removeprefix("cmdstat_"): row["usec"] for name, row in stats.items()},
            int.from_bytes(self._count.read_bytes(), "little") if self._counts else None,
            float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"]),
        )

    def memory(self) -> int:
        """Bytes of the data set."""
        return int(self.client.info("memory")["used_memory"])


def counting_library(directory: Path) -> Path | None:
    """The library that counts fsyncs, built once; None without a C compiler."""
    library = directory / "fsync_count.so"
    compiler = shutil.which("cc")
    if library.exists() or compiler is None:
        return library if library.exists() else None
    directory.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"], check=False, capture_output=True
    )
    return library if made.returncode == 0 else None
