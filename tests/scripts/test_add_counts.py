"""add_counts: what workers counted, added once."""

from __future__ import annotations

import pytest

from ledger.counts import add_counts, standing, standing_commands
from tests.scripts.checking import twice
from tests.support.ledger import SHARDS, TENANT, UNKNOWN, Ledger, key, plan


@pytest.mark.proves("C-22")
def test_a_report_that_is_sent_again_is_added_once(ledger: Ledger) -> None:
    twice(ledger, add_counts("w1", 1, {"attempts:completed": 3, "attempts:failed": 1}))
    ledger.run(add_counts("w1", 2, {"attempts:completed": 2}))
    ledger.run(add_counts("w2", 1, {"attempts:completed": 5}))
    assert ledger.raw.hgetall(key("counts")) == {b"attempts:completed": b"10", b"attempts:failed": b"1"}
    # Who reported is forgotten by itself.
    assert 0 < ledger.raw.pttl(key("counted:w1")) <= 3_600_000


def test_what_stands_is_summed_over_shards(ledger: Ledger) -> None:
    ledger.run(add_counts("w1", 1, {"attempts:completed": 3}))
    ledger.admit(plan(2), on_error="continue")
    ledger.admit(plan(1, level="approve"), session="s2")
    work, token = ledger.begin_first()
    ledger.settle(work, token, UNKNOWN, next_step=2)
    replies = ledger.store.command(standing_commands(SHARDS, [TENANT, "nobody"]))
    found = standing(replies * 2, [TENANT, "nobody"])
    assert found.counts["attempts"] == {"completed": 6}
    assert (found.owned, found.ready, found.pending, found.unknown) == (2, 0, 2, 2)
