"""declare_tools: what hosts declare holds for every admission and begin that comes after it (C-05)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger.admission import admit_delivery
from ledger.attempts import PolicyCheck, begin_next
from ledger.declared import DeclaredTools, LivePolicy, declare_tools, read_declared
from ledger.ownership import claim_sessions
from ledger.policy import Policy
from tests.scripts.checking import refused, twice, unchanged
from tests.support import handlers
from tests.support.ledger import LIMITS, POLICY, SHARD, SHARDS, TOOL, Ledger, begun, delivery, plan

DECLARED = replace(POLICY, digest="policy-1+", declared=1)
KNOWING: dict[str, Any] = {"declared": 1, "policy_digest": "policy-1+"}


def declare(ledger: Ledger, *tools: str) -> DeclaredTools:
    return ledger.run(declare_tools(SHARD, tools or (TOOL,)))


@pytest.mark.proves("C-05", "C-22")
def test_the_version_rises_with_every_addition_and_only_then(ledger: Ledger) -> None:
    assert unchanged(ledger, read_declared(SHARD)) == DeclaredTools(0, frozenset())
    first, again = twice(ledger, declare_tools(SHARD, ["pay", "refund"]))
    assert first == again == DeclaredTools(1, frozenset({"pay", "refund"}))
    assert declare(ledger, "pay", "close") == DeclaredTools(2, frozenset({"pay", "refund", "close"}))
    assert unchanged(ledger, read_declared(SHARD)).version == 2


@pytest.mark.proves("C-05")
def test_who_admits_under_an_older_version_is_told_before_anything_is_written(ledger: Ledger) -> None:
    declare(ledger)
    refused(ledger, admit_delivery(delivery(), LIMITS, SHARDS), "policy_stale")
    assert ledger.admit(limits=KNOWING).how == "new"


@pytest.mark.proves("C-05", "C-22")
def test_an_admission_sent_again_is_answered_though_the_set_has_grown(ledger: Ledger) -> None:
    call = admit_delivery(delivery(), LIMITS, SHARDS)
    first = ledger.run(call)
    declare(ledger)
    assert ledger.run(call).run.run_id == first.run.run_id


@pytest.mark.proves("C-05")
def test_who_begins_under_an_older_version_is_told(ledger: Ledger) -> None:
    ledger.admit(plan(2))
    declare(ledger)
    refused(ledger, claim_sessions(SHARD, "n1", 8, POLICY, awake=False), "policy_stale")
    (claimed,) = ledger.claim(policy=DECLARED)
    # Admitted before the declaration, so its protection is looked at again.
    assert isinstance(claimed.work, PolicyCheck)
    refused(ledger, begin_next(SHARD, claimed.sid, claimed.token, 2, POLICY), "policy_stale")


@pytest.mark.proves("C-05", "C-22")
def test_what_was_begun_before_is_answered_again(ledger: Ledger) -> None:
    ledger.admit(plan(2))
    work, token = ledger.begin_first()
    claim = claim_sessions(SHARD, "nonce1", 16, POLICY, awake=False)
    declare(ledger)
    again = begun(ledger.run(claim).sessions[0].work)
    assert replace(again, store_now=work.store_now) == work
    settled = ledger.settle(work, token, next_step=2)
    # The settlement stands; only the begin behind it is refused.
    assert (settled.how, settled.work, settled.refused) == ("settled", None, "POLICY_STALE")
    assert isinstance(ledger.begin(work.sid, token, 2, policy=DECLARED), PolicyCheck)


@pytest.mark.proves("C-05")
def test_a_handler_that_asks_under_an_older_version_is_told(ledger: Ledger) -> None:
    handlers.admit(ledger)
    owned = handlers.start(ledger)
    declare(ledger)
    refused(ledger, owned.proposal(0), "policy_stale")


@pytest.mark.proves("C-05")
def test_a_lower_version_is_as_stale_as_a_higher_one(ledger: Ledger) -> None:
    """As after a store that came back older was accepted."""
    call = admit_delivery(delivery(), replace(LIMITS, **KNOWING), SHARDS)
    refused(ledger, call, "policy_stale")


def test_a_process_keeps_what_any_shard_declared() -> None:
    base = Policy(levels={}, mutation_tools=frozenset({"a"}), read_only=frozenset(), aliases={})
    live = LivePolicy(base)
    live.adopt(3, DeclaredTools(2, frozenset({"b"})))
    live.adopt(4, DeclaredTools(1, frozenset()))
    assert (live.version(3), live.version(4), live.version(5)) == (2, 1, 0)
    assert live.policy.mutation_tools == {"a", "b"}
    assert live.base.mutation_tools == {"a"}
    assert live.policy.digest != base.digest
