"""Restart delays."""

from __future__ import annotations

from ledger.supervise.backoff import Backoff


def test_delays_double_from_a_fifth_of_a_second_to_five() -> None:
    backoff = Backoff()
    assert [backoff.delay(lived=0.1) for _ in range(8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


def test_a_child_that_had_settled_starts_a_new_row() -> None:
    backoff = Backoff()
    for _ in range(6):
        backoff.delay(lived=9.9)
    assert backoff.delay(lived=10.0) == 0.2
    assert backoff.delay(lived=0.0) == 0.4
