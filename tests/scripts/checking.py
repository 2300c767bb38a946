"""The two things every write script must hold: a refusal changes nothing, a repeat changes nothing more."""

from __future__ import annotations

from typing import TypeVar

import pytest

from ledger.errors import Refused
from ledger.store import ScriptCall
from tests.support import snapshot
from tests.support.ledger import SEQ, Ledger

T = TypeVar("T")


def refused(ledger: Ledger, call: ScriptCall[T], code: str) -> None:
    """The call is refused with `code` and no key differs, the counter included."""
    before = ledger.snapshot()
    with pytest.raises(Refused) as caught:
        ledger.run(call)
    assert caught.value.code == code
    assert ledger.snapshot() == before


def twice(ledger: Ledger, call: ScriptCall[T]) -> tuple[T, T]:
    """Both answers of a call that is sent twice; the second changes nothing but the counter, which it raises."""
    first = ledger.run(call)
    before = ledger.snapshot()
    second = ledger.run(call)
    after = ledger.snapshot()
    assert snapshot.differences(before, after) == {}
    assert int(after[SEQ][1][b"n"]) > int(before[SEQ][1][b"n"])
    return first, second


def unchanged(ledger: Ledger, call: ScriptCall[T]) -> T:
    """The answer of a read that must not write anything at all."""
    before = ledger.snapshot()
    answer = ledger.run(call)
    assert ledger.snapshot() == before
    return answer
