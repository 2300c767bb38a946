"""What a script says on the journals' channel: one message, a line for each run that it wrote in (C-112)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ledger.records import Run
from tests.support.ledger import Ledger, key, proposed


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
