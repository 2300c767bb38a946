"""confirm_shard: a write of nothing but the counter, under the same guard as every other."""

from __future__ import annotations

import pytest

from ledger.errors import StoreWentBack
from ledger.store.confirming import confirm_shard
from tests.scripts.checking import twice
from tests.support.ledger import SEQ, Ledger


@pytest.mark.proves("C-25", "C-22")
def test_it_raises_the_counter_and_changes_nothing_else(ledger: Ledger) -> None:
    ledger.admit()
    twice(ledger, confirm_shard(0))


@pytest.mark.proves("C-27")
def test_it_does_not_hide_that_writes_are_missing(ledger: Ledger) -> None:
    ledger.admit()
    ledger.raw.hset(SEQ, "n", 0)
    with pytest.raises(StoreWentBack):
        ledger.run(confirm_shard(0))
    assert ledger.raw.hget(SEQ, "n") == b"0"
