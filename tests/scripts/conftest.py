"""Script tests run on the real store, emptied for each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from redis.crc import key_slot

from tests.support.ledger import SEQ, Ledger
from tests.support.valkey import ValkeyProcess, free_port
from tests.support.wait import wait_until

pytest.register_assert_rewrite("tests.scripts.checking")


@pytest.fixture(scope="session")
def valkey_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    """A cluster node that serves the slot of shard 0 and nothing else: a script that leaves its slot fails."""
    cluster = {
        "cluster-enabled": "yes",
        "cluster-port": str(free_port()),
        "cluster-require-full-coverage": "no",
    }
    server = ValkeyProcess(tmp_path_factory.mktemp("one-slot"), settings=cluster)
    with server.serving():
        client: Any = server.client()
        client.execute_command("CLUSTER", "ADDSLOTS", key_slot(SEQ.encode()))
        wait_until(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok", 10, "the slot to be served")
        yield server


@pytest.fixture
def ledger(store_url: str) -> Iterator[Ledger]:
    """A fresh ledger of one shard."""
    made = Ledger(store_url)
    yield made
    made.close()
