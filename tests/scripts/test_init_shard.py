"""init_shard: a shard's counter hash at first use."""

from __future__ import annotations

import pytest

from ledger.config import RedisConfig
from ledger.errors import ConfigError, StoreWentBack
from ledger.store import StoreSettings, SyncStore
from ledger.store.scripts import SCRIPTS
from tests.support.ledger import SEQ, Ledger, plan
from tests.support.valkey import ValkeyProcess

SCRIPT = SCRIPTS["init_shard"].source


@pytest.mark.proves("C-27")
def test_it_makes_what_is_missing_and_changes_nothing_that_is_there(ledger: Ledger) -> None:
    before = ledger.snapshot()
    store_id = ledger.raw.hget(SEQ, "store")
    assert ledger.raw.eval(SCRIPT, 1, SEQ, "other", 7) == [store_id, 0, b"", 1, 1]
    assert ledger.snapshot() == before
    ledger.admit(plan(1))
    ledger.raw.hset(SEQ, "refused", "x")
    assert ledger.raw.eval(SCRIPT, 1, SEQ, "other", 7) == [store_id, 1, b"x", 1, 1]
    ledger.raw.flushall()
    ledger.raw.hset(SEQ, mapping={"store": "accepted", "n": 3})
    assert ledger.raw.eval(SCRIPT, 1, SEQ, "other", 7) == [b"accepted", 3, b"", 7, 1]
    assert ledger.raw.eval(SCRIPT, 1, SEQ, "other", 9) == [b"accepted", 3, b"", 7, 1]


@pytest.mark.proves("C-27")
def test_all_shards_of_a_store_get_one_id(valkey: ValkeyProcess) -> None:
    for _ in range(2):
        store = SyncStore(StoreSettings(RedisConfig(url=valkey.url, shards=16)))
        store.open()
        assert len(set(store.view.ids)) == 1
        store.close()


def test_another_number_of_shards_is_refused(ledger: Ledger, store_url: str) -> None:
    other = SyncStore(StoreSettings(RedisConfig(url=store_url, shards=4)))
    with pytest.raises(ConfigError, match="set shards = 1"):
        other.open()
    other.close()


@pytest.mark.proves("C-27")
def test_a_process_does_not_start_on_a_refused_store(ledger: Ledger, store_url: str) -> None:
    ledger.raw.hset(SEQ, "refused", "x")
    other = SyncStore(StoreSettings(RedisConfig(url=store_url, shards=1)))
    with pytest.raises(StoreWentBack, match="store accept"):
        other.open()
    other.close()
