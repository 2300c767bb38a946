"""read_catalogs, and what an admission makes of a call that its server does not list like that (C-60, C-64)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.catalogs import read_catalogs
from ledger.errors import Refused
from tests.support.ledger import Ledger, plan, proposed

REFUSAL = Refused("calls.0.arguments.title: does not fit", code="arguments_invalid")
UNLISTED = [replace(proposed(0), refusal=REFUSAL)]
UNPROTECTED = [replace(proposed(0, protected=False), refusal=REFUSAL)]


def test_an_empty_store_lists_nothing(ledger: Ledger) -> None:
    before = ledger.snapshot()
    assert ledger.run(read_catalogs(["0" * 32])) == []
    assert ledger.snapshot() == before


@pytest.mark.proves("C-64")
@pytest.mark.parametrize("calls", [UNLISTED, UNPROTECTED, [*plan(1, text="other"), *UNLISTED]])
def test_what_is_new_is_refused_and_nothing_changes(ledger: Ledger, calls: list[object]) -> None:
    before = ledger.snapshot()
    with pytest.raises(Refused, match=r"calls\.0\.arguments\.title: does not fit") as refused:
        ledger.admit(calls)  # type: ignore[arg-type]
    assert refused.value.code == "arguments_invalid"
    assert ledger.snapshot() == before


@pytest.mark.proves("C-60", "C-64")
@pytest.mark.parametrize("options", [{}, {"did": None}])
def test_a_delivery_under_way_is_answered_all_the_same(ledger: Ledger, options: dict[str, None]) -> None:
    """Its caller lost the reply, and the server lists something else by now."""
    first = ledger.admit(plan(1), **options)
    again = ledger.admit(UNLISTED, **options)
    assert (again.how, again.run.run_id) == ("attached", first.run.run_id)


@pytest.mark.proves("C-60", "C-64")
def test_a_delivery_that_is_over_hears_what_became_of_it(ledger: Ledger) -> None:
    ledger.admit(plan(1))
    work, token = ledger.begin_first()
    ledger.settle(work, token, next_step=2)
    again = ledger.admit(UNLISTED)
    assert again.how == "redelivered"
    assert again.run.calls[0].refusal == "mutation_completed"
