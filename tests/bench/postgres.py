"""A Postgres cluster of one benchmark run, from Debian's package: fsync and synchronous_commit on, loopback only."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from ledger.supervise.child import command_line
from tests.bench.drivers import DriverFailed
from tests.support.valkey import free_port

DEBIAN = Path("/usr/lib/postgresql")
USER = "postgres"
START_SECONDS = 30.0


def find() -> Path | None:
    """The folder of `initdb` and `postgres`, or None."""
    versions = sorted(DEBIAN.glob("*/bin/initdb"), reverse=True)
    on_path = shutil.which("initdb")
    found = versions[0] if versions else Path(on_path) if on_path else None
    return found.resolve().parent if found else None


class Postgres:
    """One server; it refuses to run as root, so root starts it as Debian's user `postgres`.

    That user may not pass through the folders of a checkout, so its files are then in a temporary folder of their own.
    """

    def __init__(self, directory: Path, programs: Path) -> None:
        self._directory = directory
        self._programs = programs
        self.port = free_port()

    @property
    def url(self) -> str:
        """The address of its database."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> Self:
        if os.getuid() == 0:
            self._directory = Path(tempfile.mkdtemp(prefix=f"{self._directory.name}-"))
            shutil.chown(self._directory, USER)
        self._directory.mkdir(parents=True, exist_ok=True)
        data = self._directory / "data"
        initdb = [str(self._programs / "initdb"), "-D", str(data), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync"]
        made = subprocess.run(self._as_user(initdb), check=False, capture_output=True, cwd="/")
        if made.returncode:
            raise DriverFailed(f"initdb failed: {made.stderr.decode(errors='replace').strip()[-200:]}")
        command = [str(self._programs / "postgres"), "-D", str(data), "-k", str(self._directory)]
        for setting in (
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            "fsync=on",
            "synchronous_commit=on",
            "max_connections=300",
            "shared_buffers=256MB",
        ):
            command += ["-c", setting]
        with (self._directory / "server.log").open("wb") as log:
            self._process = subprocess.Popen(command_line(self._as_user(command)), stdout=log, stderr=log, cwd="/")
        self._wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop = [str(self._programs / "pg_ctl"), "stop", "-m", "immediate", "-D", str(self._directory / "data")]
        subprocess.run(self._as_user(stop), check=False, capture_output=True, cwd="/")
        self._process.terminate()
        self._process.wait(10)
        shutil.rmtree(self._directory, ignore_errors=True)

    def version(self) -> str:
        """As the program says."""
        told = subprocess.run([str(self._programs / "postgres"), "--version"], check=True, capture_output=True)
        return told.stdout.decode().split()[2]

    def _as_user(self, command: list[str]) -> list[str]:
        return (
            ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *command]
            if os.getuid() == 0
            else command
        )

    def _wait(self) -> None:
        ready = [str(self._programs / "pg_isready"), "-h", "127.0.0.1", "-p", str(self.port), "-q"]
        end = time.monotonic() + START_SECONDS
        while subprocess.run(ready, check=False).returncode:
            if self._process.poll() is not None or time.monotonic() > end:
                raise DriverFailed("postgres did not start")
            time.sleep(0.1)
