"""switch_off: a lingering worker takes its promise back, unless there is work."""

from __future__ import annotations

import pytest

from ledger.ownership import claim_sessions, switch_off
from tests.scripts.checking import unchanged
from tests.support.ledger import POLICY, SHARD, Ledger, key, plan


@pytest.mark.proves("C-31")
def test_the_promise_goes_only_while_nothing_is_ready(ledger: Ledger) -> None:
    ledger.run(claim_sessions(SHARD, "n", 0, POLICY))
    ledger.admit(plan(1))
    assert not unchanged(ledger, switch_off(SHARD))
    ledger.finish()
    assert ledger.run(switch_off(SHARD))
    assert ledger.raw.get(key("awake")) is None
    assert ledger.admit(plan(1), did="d2").wake
