"""A worker is killed in the middle of a call. Nobody can know what happened, so the ledger says exactly that."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.stack import Api, Stack
from tests.support.wait import wait_until

SLOW = "mcp__dashboards__create_slow"


@pytest.mark.acceptance
@pytest.mark.proves("C-33", "C-91")
def test_a_worker_dies_and_a_person_says_what_happened(service: Stack) -> None:
    agent = Api(service.ports[0])
    arguments = {"title": "Half done", "seconds_after": 30.0}
    run = agent.trigger("incident-3", "msg-1", [(SLOW, arguments)]).body
    agent.approve(run["calls"][0]["approval_id"])
    wait_until(lambda: _made(service) == 1, 20, "the dashboard to be made")

    # The effect has happened, the answer has not: now the worker is gone.
    service.kill(service.workers[-1])
    service.add_worker()

    # When its lease ends, the mutation is published as unknown, and is never sent again by itself.
    ended = agent.ended(run["run_id"])
    (call,) = ended["calls"]
    assert call["outcome"]["status"] == "outcome_unknown"
    again = agent.trigger("incident-3", "msg-1", [(SLOW, arguments)], wait=10).body
    assert again["calls"][0]["refusal"]["code"] == "mutation_outcome_unknown"

    # Somebody looks at the dashboards, sees it there, and says so on the command line.
    said = _reconcile(service, ended["logical_turn_id"], call["mutation_id"])
    assert said.returncode == 0, said.stderr
    (outcome,) = agent.outcomes("incident-3")
    assert outcome["status"] == "completed"
    assert _made(service) == 1


def _made(service: Stack) -> int:
    return sum(effect["title"] == "Half done" for effect in service.effects())


def _reconcile(service: Stack, turn: str, mutation: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ledger.cli", "reconcile", "incident-3", turn, mutation, "--completed"]
    command += ["--tenant", "acme", "--config", str(service.config), "--redis-url", service.store_url]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
