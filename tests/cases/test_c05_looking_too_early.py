"""C05: "nothing there" shortly after dispatch proves nothing: unknown it stays until the attempt must be over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.config import load
from ledger.engine import Engine, IncomingMessage
from ledger.errors import Refused
from ledger.identity import mutation_identity
from tests.support.case_servers import gone
from tests.support.fake_section import fake_section
from tests.support.stack import Stack, quick_section
from tests.support.tool_calls import FakeServer
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

SLOW = "mcp__fake__slow"
ARGUMENTS = {"seconds": 3.0, "case": "c05"}


@pytest.fixture
def stack(valkey: ValkeyProcess, tmp_path: Path) -> Iterator[tuple[Stack, FakeServer, Engine]]:
    fake = FakeServer(tmp_path)
    timing = quick_section(lease=1.0, tool_timeout_seconds=4.0)
    made = Stack(
        tmp_path / "stack",
        valkey.url,
        f'{timing}{fake_section(fake)}[policy]\nmutation_tools = ["{SLOW}"]\n',
    )
    settings = load(made.config, overrides={"redis": {"url": valkey.url}})
    engine = Engine(settings, tenant="acme", principal="host", agent="ops", data_dir=tmp_path / "data")
    yield made, fake, engine
    engine.close()
    made.stop()


@pytest.mark.proves("C-33", "C-91")
def test_reconciliation_waits_until_the_attempt_must_be_over(stack: tuple[Stack, FakeServer, Engine]) -> None:
    processes, fake, engine = stack
    first = processes.add_worker()
    told = IncomingMessage("c05", user="dana", calls=[(SLOW, ARGUMENTS)], delivery_id="d1")
    engine.handle_with_results(told, wait_seconds=0)
    wait_until(lambda: fake.events("received", method="tools/call"), 20, "the call to be sent")
    sent_at = fake.events("received", method="tools/call")[0]["at"]
    servers = fake.pids()
    processes.kill(first)
    processes.add_worker(wait=False)

    # A look-up that finds nothing says nothing yet, whoever asks, before the new owner's sweep and after it.
    answers: list[str] = []
    with pytest.raises(Refused):
        engine.reconcile_mutation(told, mutation_identity(SLOW, ARGUMENTS), completed=False)
    assert [one["status"] for one in engine.sessions.mutation_outcomes("c05")] == ["outcome_unknown"]
    wait_until(lambda: _reconciled(engine, told, answers), 20, "the reconciliation to be accepted")
    assert set(answers[:-1]) == {"attempt_may_be_running"}
    assert answers[-1] == "not_executed"
    # The call's four seconds, the drain of one and the lease of one had passed by then.
    assert time.time() - sent_at >= 5.5
    # One call and one effect, which landed after the first look; nothing happens any more behind the record's back.
    assert len(fake.events("received", method="tools/call")) == 1
    assert fake.effects() == 1
    assert fake.events("effect")[0]["at"] - sent_at >= 3.0
    gone(servers, 10)


def _reconciled(engine: Engine, told: IncomingMessage, answers: list[str]) -> bool:
    try:
        record = engine.reconcile_mutation(told, mutation_identity(SLOW, ARGUMENTS), completed=False)
    except Refused as error:
        answers.append(error.code)
        return False
    answers.append(record["status"])
    return True
