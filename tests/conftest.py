"""Fixtures that every suite shares: real Valkey servers with a durable AOF."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.valkey import ValkeyProcess


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[ValkeyProcess]:
    """A fresh Valkey with AOF and fsync always, for tests that kill, restart or reconfigure it."""
    server = ValkeyProcess(tmp_path / "valkey")
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def valkey_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    """One Valkey for the whole session of a test process; use `store_url`, which empties it first."""
    server = ValkeyProcess(tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def store_url(valkey_session: ValkeyProcess) -> str:
    """The URL of the session's Valkey, emptied. A test must not change its settings or stop it."""
    client = valkey_session.client()
    client.flushall()
    client.close()
    return valkey_session.url
