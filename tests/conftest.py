"""Fixtures that every suite shares: real Valkey servers with a durable AOF."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.valkey import ValkeyProcess

LONG = frozenset(
    f"tests/{name}.py"
    for name in (
        "acceptance/test_two_stacks",
        "faults/test_rows",
        "faults/test_soak",
        "integration/test_catalogs",
        "model/test_model",
        "soak/test_tools",
    )
)
"""Files of the tests that take half a minute and more."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each process of a parallel run begins with its part of the long tests: none is left over for the end."""
    processes: int = getattr(config, "workerinput", {}).get("workercount", 1)
    long = [item for item in items if item.location[0] in LONG]
    rest = iter([item for item in items if item.location[0] not in LONG])
    # pytest-xdist first deals the tests out in as many equal pieces as there are processes.
    ordered: list[pytest.Item] = []
    for process in range(processes):
        mine = long[process::processes]
        room = max(0, len(items) // processes - len(mine))
        ordered += [*mine, *itertools.islice(rest, room)]
    items[:] = [*ordered, *rest]


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
