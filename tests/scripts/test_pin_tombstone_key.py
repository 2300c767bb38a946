"""pin_tombstone_key: the store's key is written once; another one is refused (C-84)."""

from __future__ import annotations

import pytest

from ledger.tombstone import pin_key
from tests.scripts.checking import refused, twice
from tests.support.ledger import SEQ, Ledger


@pytest.mark.proves("C-84")
def test_the_first_key_is_the_stores_and_another_is_refused(ledger: Ledger) -> None:
    twice(ledger, pin_key(b"k" * 32))
    refused(ledger, pin_key(b"l" * 32), "tombstone_key_changed")
    ledger.run(pin_key(b"k" * 32))


@pytest.mark.proves("C-84")
def test_the_key_itself_is_not_stored(ledger: Ledger) -> None:
    ledger.run(pin_key(b"a secret of sixteen"))
    assert ledger.where("a secret of sixteen") == []
    assert ledger.raw.hget(SEQ, "tombstone_key")
