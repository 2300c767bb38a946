"""erasure_left: whether an erasure still has something to delete."""

from __future__ import annotations

import pytest

from ledger.erasure import erase_session, erasure_left, sweep_retention
from tests.scripts.checking import unchanged
from tests.support.ledger import SHARD, SHARDS, TENANT, Ledger, plan


@pytest.mark.proves("C-82")
def test_it_is_true_from_the_erasure_to_the_last_piece(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    ledger.admit(plan(1), session="s2")
    assert not unchanged(ledger, erasure_left(TENANT, "s1", SHARDS))
    ledger.run(erase_session(TENANT, "s1", 60_000, SHARDS))
    assert unchanged(ledger, erasure_left(TENANT, "s1", SHARDS))
    assert not unchanged(ledger, erasure_left(TENANT, "s2", SHARDS))
    ledger.admit(plan(1), did="d9")
    assert unchanged(ledger, erasure_left(TENANT, "s1", SHARDS))
    ledger.run(sweep_retention(SHARD, 60_000, 1000))
    assert not unchanged(ledger, erasure_left(TENANT, "s1", SHARDS))
