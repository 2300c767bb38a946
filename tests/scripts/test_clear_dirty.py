"""clear_dirty: the mark of erased data goes once a rewrite covers it, and only that mark."""

from __future__ import annotations

import pytest

from ledger.erasure import clear_dirty, erase_session
from tests.scripts.checking import unchanged
from tests.support.ledger import SHARD, SHARDS, TENANT, Ledger, key, plan


@pytest.mark.proves("C-84")
def test_a_later_erasure_keeps_its_mark(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    ledger.run(erase_session(TENANT, "s1", 60_000, SHARDS))
    mark = int(ledger.raw.get(key("dirty")))
    assert not unchanged(ledger, clear_dirty(SHARD, mark - 1))
    assert ledger.run(clear_dirty(SHARD, mark))
    assert ledger.raw.get(key("dirty")) is None
    assert not unchanged(ledger, clear_dirty(SHARD, mark))
