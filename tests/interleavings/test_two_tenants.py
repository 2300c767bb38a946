"""Two tenants use the same session, agent, user, delivery and call: in no order do they meet (contract, section 15)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from ledger import approvals, history, runs
from ledger.admission import Admitted, admit_delivery
from ledger.erasure import erase_session
from ledger.errors import Refused
from ledger.identity import delivery_identity
from tests.support.interleaving import Order, Prepared, Worker, emptied, orders, some
from tests.support.ledger import LIMITS, SHARD, SHARDS, Ledger, delivery, key, proposed

TENANTS = ("acme", "umbrella")
ORDERS = some(orders(3, 3, 5), 20_000 if os.environ.get("MUTATION_LEDGER_TESTS") == "long" else 120, seed=15)
CALLS = [proposed(1, level="approve"), proposed(2)]


@pytest.fixture(scope="module")
def nothing(valkey_url: str) -> Iterator[Prepared]:
    """A store that was opened and never used."""
    emptied(valkey_url).close()
    prepared = Prepared(valkey_url)
    yield prepared
    prepared.close()


class Tenant:
    """A host and an approver of one tenant; both tenants use the very same names."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self._ledger = ledger
        self.name = name
        self.admitted: list[Admitted] = []
        self.steps = iter((self.deliver, self.approve, self.deliver))

    def deliver(self) -> None:
        """The delivery, or its redelivery."""
        made = replace(delivery(CALLS, did="d1"), tenant=self.name)
        self.admitted.append(self._ledger.run(admit_delivery(made, LIMITS, SHARDS)))

    def approve(self) -> None:
        """Yes to everything that the tenant's own inbox shows."""
        for row in self._ledger.run(approvals.pending_approvals(SHARD, self.name, 100)).approvals:
            assert row.tenant == self.name
            self._ledger.run(approvals.decide(approvals.Decision(row.approval_id, self.name, "approve", "bob"), SHARD))

    def runs(self) -> set[str]:
        """Ids of its runs."""
        return {one.run.run_id for one in self.admitted}

    def approvals(self) -> set[str]:
        """Ids of its requests."""
        return {call.approval_id for one in self.admitted for call in one.run.calls if call.approval_id}


def _step(tenant: Tenant) -> Callable[[], None]:
    def step() -> None:
        next(tenant.steps)()

    return step


@pytest.mark.proves("C-42", "C-60", "C-63", "C-82", "C-84")
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_they_never_meet(nothing: Prepared, order: Order) -> None:
    ledger = nothing.again()
    worker = Worker(ledger)
    both = [Tenant(ledger, name) for name in TENANTS]
    actors = (*map(_step, both), worker.step)
    for actor in order:
        actors[actor]()
    for tenant in both:
        tenant.approve()
    worker.drain()

    mutations = [call.mutation_id for call in both[0].admitted[0].run.calls]
    identities = [delivery_identity(name, "s1", "ops", "dana", "d1") for name in TENANTS]
    assert [tenant.admitted[0].run.delivery for tenant in both] == identities
    for tenant, other in (both, both[::-1]):
        # Each mutation once for each of them, though tools, arguments and all names are the same.
        mine = [work for work in worker.begun if work.run_id in tenant.runs()]
        assert sorted(work.mutation_id for work in mine) == sorted(mutations)
        assert tenant.runs().isdisjoint(other.runs())
        assert tenant.approvals().isdisjoint(other.approvals())
        session = ledger.session("s1", tenant.name)
        assert session is not None
        assert {turn.deliveries for turn in session.turns} == {(identities[TENANTS.index(tenant.name)],)}
        streamed = [row for row in ledger.outcomes() if row["tenant"] == tenant.name]
        assert {row["logical_turn_id"] for row in streamed} == {turn.logical_turn_id for turn in session.turns}
        _sees_nothing(ledger, tenant.name, other)

    # What one of them erases is not retired for the other.
    assert ledger.run(erase_session(both[0].name, "s1", 60_000, SHARDS))
    with pytest.raises(Refused, match="retired"):
        both[0].deliver()
    both[1].deliver()
    assert ledger.session("s1", both[0].name) is None
    assert ledger.session("s1", both[1].name) is not None
    ledger.close()


def _sees_nothing(ledger: Ledger, name: str, other: Tenant) -> None:
    """What a tenant gets of another's run, request and turn, by their very ids: nothing, and nothing is changed."""
    before = ledger.snapshot()
    for run_id in other.runs():
        assert ledger.run(runs.read_run(SHARD, run_id, name)).run is None
        assert not ledger.run(runs.read_journal(SHARD, run_id, name, 0)).known
        assert ledger.run(runs.cancel_run(SHARD, run_id, name)).answer == "unknown"
    for approval_id in other.approvals():
        assert ledger.run(approvals.read_approval(SHARD, name, approval_id)).approvals == ()
        assert _refusal(ledger, approvals.decide(approvals.Decision(approval_id, name, "approve", "x"), SHARD)) == (
            "not_found"
        )
    theirs = ledger.session("s1", other.name)
    assert theirs is not None
    for turn in theirs.turns:
        found = ledger.run(history.read_turn(name, "s1", turn.logical_turn_id, SHARDS))
        assert found is None or found.turns == ()
        continuing = replace(delivery(CALLS, did="d9", logical_turn_id=turn.logical_turn_id), tenant=name)
        assert _refusal(ledger, admit_delivery(continuing, LIMITS, SHARDS)) == "logical_turn_unavailable"
    assert ledger.raw.zcard(key(f"sessions:{name}")) == 1
    assert ledger.snapshot() == before


def _refusal(ledger: Ledger, call: Any) -> str:
    with pytest.raises(Refused) as refused:
        ledger.run(call)
    return refused.value.code
