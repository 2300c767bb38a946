"""check_shard: a process that met the server anew says what it knows, and stops a shard for another one's sake."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError

from ledger.store.scripts import SCRIPTS
from tests.support.ledger import SEQ, Ledger


def check(ledger: Ledger, store_id: bytes | str, seen: int, refuse: int = 0) -> list[Any]:
    """Sends the script as a process that knows `seen` of `store_id`."""
    answer: list[Any] = ledger.raw.eval(SCRIPTS["check_shard"].source, 1, SEQ, store_id, seen, refuse)
    return answer


def state(ledger: Ledger) -> tuple[bytes, int, bytes | None]:
    """Store id, counter and what it is refused for."""
    store_id, n, refused = ledger.raw.hmget(SEQ, "store", "n", "refused")
    return store_id, int(n), refused


@pytest.mark.proves("C-27")
def test_a_store_that_kept_everything_is_left_alone(ledger: Ledger) -> None:
    ledger.admit()
    store_id, n, _ = state(ledger)
    before = ledger.snapshot()
    assert check(ledger, store_id, n) == [-1, n]
    assert ledger.snapshot() == before


@pytest.mark.proves("C-27")
def test_a_store_that_lacks_confirmed_writes_is_refused(ledger: Ledger) -> None:
    ledger.admit()
    store_id, n, _ = state(ledger)
    with pytest.raises(ResponseError, match="STORE_WENT_BACK"):
        check(ledger, store_id, n + 1)
    assert state(ledger) == (store_id, n, store_id)
    with pytest.raises(ResponseError, match="STORE_WENT_BACK"):
        check(ledger, store_id, n)


@pytest.mark.proves("C-27")
def test_a_shard_is_stopped_for_what_another_lacks(ledger: Ledger) -> None:
    ledger.admit()
    store_id, n, _ = state(ledger)
    assert check(ledger, store_id, n, refuse=1) == [-1, n]
    assert state(ledger) == (store_id, n, store_id)


@pytest.mark.proves("C-27")
def test_a_shard_that_was_accepted_since_is_not_stopped_again(ledger: Ledger) -> None:
    ledger.admit()
    store_id, n, _ = state(ledger)
    ledger.raw.eval(SCRIPTS["accept_shard"].source, 1, SEQ, "accepted", 100)
    with pytest.raises(ResponseError, match="STORE_CHANGED accepted"):
        check(ledger, store_id, n + 5, refuse=1)
    assert state(ledger)[2] is None
