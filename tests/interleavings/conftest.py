"""A server of its own for stores that are prepared once and begun from many times."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.valkey import ValkeyProcess


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Valkey that only these tests use."""
    server = ValkeyProcess(tmp_path_factory.mktemp("interleavings")).start()
    yield server.url
    server.stop()
