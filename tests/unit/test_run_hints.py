"""Hints on journals' channels: who is woken by which, and what is remembered (C-112)."""

from __future__ import annotations

import threading

import pytest

from ledger import run_hints
from ledger.run_hints import RunHints


@pytest.fixture
def hints() -> RunHints[threading.Event]:
    return RunHints(threading.Event)


def test_any_hint_wakes_whoever_watches_that_run(hints: RunHints[threading.Event]) -> None:
    with hints.watch("run1") as mine, hints.watch("run1") as also, hints.watch("run2") as other:
        hints.heard(b"run1 3")
        assert mine.is_set()
        assert also.is_set()
        assert not other.is_set()


def test_only_the_end_wakes_whoever_waits_for_it(hints: RunHints[threading.Event]) -> None:
    with hints.watch_end("run1") as mine, hints.watch("run1") as any_hint:
        hints.heard(b"run1 3")
        assert not mine.is_set()
        any_hint.clear()
        hints.heard(b"run1 5 end")
        assert mine.is_set()
        assert any_hint.is_set()


def test_one_message_may_hold_the_hints_of_several_runs(hints: RunHints[threading.Event]) -> None:
    with hints.watch_end("run1") as first, hints.watch("run2") as second, hints.watch_end("run2") as not_yet:
        hints.heard(b"run1 5 end\nrun2 2")
        assert first.is_set()
        assert second.is_set()
        assert not not_yet.is_set()


def test_an_end_that_nobody_waited_for_is_told_to_the_first_who_comes(hints: RunHints[threading.Event]) -> None:
    hints.heard(b"run1 5 end")
    hints.heard(b"run2 4")
    with hints.watch_end("run1") as first, hints.watch_end("run1") as second, hints.watch_end("run2") as other:
        assert first.is_set()
        assert not second.is_set()
        assert not other.is_set()


def test_an_end_that_was_waited_for_is_not_kept(hints: RunHints[threading.Event]) -> None:
    with hints.watch_end("run1"):
        hints.heard(b"run1 5 end")
    with hints.watch_end("run1") as later:
        assert not later.is_set()


def test_the_oldest_ends_are_forgotten_first(hints: RunHints[threading.Event], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_hints, "ENDS_REMEMBERED", 2)
    for n in range(3):
        hints.heard(b"run%d 5 end" % n)
    told = []
    for n in range(3):
        with hints.watch_end(f"run{n}") as hint:
            told.append(hint.is_set())
    assert told == [False, True, True]


def test_everybody_looks_after_hints_may_have_been_missed(hints: RunHints[threading.Event]) -> None:
    with hints.watch("run1") as one, hints.watch_end("run2") as two:
        hints.all_again()
        assert one.is_set()
        assert two.is_set()


def test_nobody_is_kept_after_leaving(hints: RunHints[threading.Event]) -> None:
    with hints.watch("run1"), hints.watch_end("run1"), hints.watch_end("run2"):
        assert hints.waiting == 2
    assert hints.waiting == 0
