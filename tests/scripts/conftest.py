"""Script tests run on the real store, emptied for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.ledger import Ledger

pytest.register_assert_rewrite("tests.scripts.checking")


@pytest.fixture
def ledger(store_url: str) -> Iterator[Ledger]:
    """A fresh ledger of one shard."""
    made = Ledger(store_url)
    yield made
    made.close()
