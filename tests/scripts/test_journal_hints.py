"""What a script says on the journals' channel: one message, a line for each run that it wrote in (C-112)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ledger.approvals import pending_approvals
from ledger.records import Run
from tests.support.ledger import SHARD, TENANT, Ledger, key, proposed
from tests.support.wait import wait_until


@pytest.fixture
def hints(ledger: Ledger) -> Iterator[Any]:
    """The channel, from now on."""
    pubsub = ledger.raw.pubsub(ignore_subscribe_messages=True)
    pubsub.ssubscribe(key("journal-signal"))
    pubsub.get_sharded_message(timeout=5)
    yield pubsub
    pubsub.close()


def lines(hints: Any) -> list[str]:
    """The next message."""
    message: bytes = hints.get_sharded_message(timeout=5)["data"]
    return message.decode().split("\n")


def hint(ledger: Ledger, run: Run, *, ended: bool = False) -> str:
    return f"{run.run_id} {ledger.read(run).journal_length}" + (" end" if ended else "")


@pytest.mark.proves("C-112")
def test_a_settlement_and_the_begin_behind_it_are_one_message(ledger: Ledger, hints: Any) -> None:
    first = ledger.admit([proposed(1)]).run
    assert lines(hints) == [hint(ledger, first)]
    second = ledger.admit([proposed(2)], did="d2").run
    assert lines(hints) == [hint(ledger, second)]
    work, token = ledger.begin_first()
    assert lines(hints) == [hint(ledger, first)]
    ledger.settle(work, token, next_step=2)
    assert sorted(lines(hints)) == sorted([hint(ledger, first, ended=True), hint(ledger, second)])


@pytest.mark.proves("C-112")
def test_a_read_that_changes_nothing_says_nothing(ledger: Ledger, hints: Any) -> None:
    run = ledger.admit([proposed(1)]).run
    assert lines(hints) == [hint(ledger, run)]
    ledger.read(run)
    other = ledger.admit([proposed(1)], session="s2").run
    assert lines(hints) == [hint(ledger, other)]


@pytest.mark.proves("C-55", "C-112")
def test_a_cancel_is_hinted(ledger: Ledger, hints: Any) -> None:
    run = ledger.admit([proposed(1, level="approve")]).run
    assert lines(hints) == [hint(ledger, run)]
    ledger.cancel(run)
    assert lines(hints) == [hint(ledger, run, ended=True)]


@pytest.mark.proves("C-41", "C-112")
def test_requests_that_ran_out_are_hinted_once_each(ledger: Ledger, hints: Any) -> None:
    asked = [proposed(1, level="approve")]
    runs = [ledger.admit(asked, limits={"approval_ms": 300}, session=name).run for name in ("s1", "s2")]
    for run in runs:
        assert lines(hints) == [f"{run.run_id} {run.journal_length}"]
    last = ledger.now() + 400
    wait_until(lambda: ledger.now() > last, 5, "the requests to run out")
    ledger.run(pending_approvals(SHARD, TENANT, 10))
    heard = [lines(hints), lines(hints)]
    assert sorted(heard) == sorted([hint(ledger, run, ended=True)] for run in runs)
