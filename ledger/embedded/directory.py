"""One supervisor and one server a data directory: the lock, the pid file, and what a crash left behind."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path

from ledger.errors import ConfigError, StoreError

PID_FILE = "store.pid"
LOCK_FILE = "store.lock"


class DirectoryLock:
    """An exclusive lock on a data directory, held as long as this process lives or until `release`."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / LOCK_FILE
        self._handle: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._handle is not None

    def acquire(self) -> None:
        """Take the lock; raises ConfigError naming the holder if another process has it."""
        if self._handle is not None:
            return
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 20).decode(errors="replace").strip() or "unknown"
            os.close(handle)
            raise ConfigError(
                f"{self._path.parent} is in use by process {holder}; stop it, or give another --data"
            ) from None
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        self._handle = handle

    def release(self) -> None:
        """Give the lock back. The file stays: removing it would let two processes lock two files."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def make_private(folder: Path) -> None:
    """Make `folder` for its owner only, if it is not there. Raises ConfigError if that cannot be."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the directory {folder}: {error.strerror}; give another --data") from None


def write_private(path: Path, text: str) -> None:
    """Replace `path` by `text` in one step, readable by its owner only."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.unlink(missing_ok=True)
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", errors="surrogateescape") as file:
        file.write(text)
    scratch.replace(path)


def end_leftover(data_dir: Path, store_dir: Path, *, timeout: float = 20.0) -> int | None:
    """Stop a server that a killed supervisor left on `store_dir`; its pid, or None if there was none.

    Only called under the lock. Never signals a process that is not a server of this very directory, so a
    pid that was given out anew is safe. Raises StoreError if it will not end.
    """
    try:
        pid = int((data_dir / PID_FILE).read_text())
    except (FileNotFoundError, ValueError):
        return None
    if not serves(pid, store_dir):
        return None
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal(pid, number)
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if not serves(pid, store_dir):
                return pid
            time.sleep(0.01)
    raise StoreError(f"process {pid} still serves {store_dir} and does not end; stop it and start again")


def serves(pid: int, store_dir: Path) -> bool:
    """Whether `pid` is a living server process that works in `store_dir`."""
    process = Path("/proc") / str(pid)
    try:
        # After an upgrade the old binary's link reads "... (deleted)".
        name = os.readlink(process / "exe").removesuffix(" (deleted)")
        return name.endswith(("valkey-server", "redis-server")) and os.path.samefile(process / "cwd", store_dir)
    except OSError:
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
