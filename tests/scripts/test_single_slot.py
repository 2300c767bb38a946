"""What the other tests here rest on: a script, or a function, that leaves the slot of its shard fails."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from ledger.store.scripts import SCRIPTS
from tests.support.ledger import SEQ, Ledger

STRAY = "return redis.call('SET', 'ml:{01}:stray', '1')"


def test_a_script_that_leaves_its_slot_fails(ledger: Ledger) -> None:
    with pytest.raises(ResponseError, match="non local key"):
        ledger.raw.eval(STRAY, 1, SEQ)


def test_a_function_that_leaves_its_slot_fails(ledger: Ledger) -> None:
    code = f"#!lua name=stray\nredis.register_function('stray', function(KEYS, ARGV) {STRAY} end)"
    ledger.raw.function_load(code, replace=True)
    with pytest.raises(ResponseError, match="non local key"):
        ledger.raw.fcall("stray", 1, SEQ)
    ledger.raw.function_delete("stray")


def test_every_script_takes_its_slot_from_one_key() -> None:
    assert len(SCRIPTS) > 20
    for script in SCRIPTS.values():
        assert "KEYS[2]" not in script.source, script.name
