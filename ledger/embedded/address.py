"""Where the embedded store listens: a socket under its data directory, or what comes nearest to that."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

URL_FILE = "store.url"
SOCKET_FILE = "valkey.sock"
# sun_path holds 108 bytes on Linux with the closing zero.
SOCKET_PATH_BYTES = 107


@dataclass(frozen=True, slots=True)
class Address:
    """Either a socket `path`, or a loopback `port` with a `password`: any local user can reach a port."""

    path: Path | None = None
    port: int = 0
    password: str = ""

    @property
    def url(self) -> str:
        """The address as redis-py reads it."""
        if self.path is not None:
            return f"unix://{quote(str(self.path))}"
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"


def choose(data_dir: Path, port: int | None = None) -> Address:
    """The address for `data_dir` (absolute): the port asked for, else a socket, else a free loopback port.

    A path too long for a socket is replaced by one in a private directory under the system's temporary one,
    named after the data directory, so that a later start finds the same place.
    """
    if port is not None:
        return Address(port=port, password=secrets.token_urlsafe(24))
    name = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:12]
    short = Path(tempfile.gettempdir()) / f"mutation-ledger-{os.geteuid()}-{name}"
    for folder in (data_dir, short):
        path = folder / SOCKET_FILE
        if len(os.fsencode(path)) <= SOCKET_PATH_BYTES and _private(folder):
            return Address(path=path)
    return Address(port=_free_port(), password=secrets.token_urlsafe(24))


def find_url(data_dir: Path) -> str | None:
    """The URL of the store that was last started on `data_dir`, or None if none is recorded."""
    try:
        return (data_dir / URL_FILE).read_text().strip() or None
    except FileNotFoundError:
        return None


def _private(folder: Path) -> bool:
    """Make `folder` if needed; False if somebody else could have prepared it for us."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return ours and not found.st_mode & 0o022


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
