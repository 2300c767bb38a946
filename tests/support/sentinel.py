"""A real Sentinel for tests, which watches one server under the name `main`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.valkey import VALKEY, ValkeyProcess, free_port


@contextmanager
def sentinel_of(server: ValkeyProcess, directory: Path) -> Iterator[str]:
    """Yields `redis+sentinel://host:port`, to which `/main` is added; it may not listen yet."""
    port = free_port()
    settings = directory / "sentinel.conf"
    settings.write_text(f"port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {server.port} 1\n")
    process = subprocess.Popen([VALKEY, settings, "--sentinel"], stdout=subprocess.DEVNULL, cwd=directory)
    try:
        yield f"redis+sentinel://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
