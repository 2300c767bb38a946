"""Two front doors and three workers on one store: a session never has two owners, whatever happens to them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.support.audit import OwnerAudit, pid_of
from tests.support.checker import check, read_ledger
from tests.support.stack import Api, Stack, native_section, quick_section
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

SESSIONS, PLANS, CALLS = 12, 2, 32


@pytest.mark.acceptance
@pytest.mark.timeout(180)
@pytest.mark.proves("C-30", "C-31", "C-32", "C-33")
def test_a_session_never_has_two_owners(valkey: ValkeyProcess, tmp_path: Path) -> None:
    config = native_section() + quick_section(lease=2.0)
    few = ("--concurrency", "3")
    with Stack(tmp_path / "stack", valkey.url, config) as stack, OwnerAudit(valkey) as audit:
        doors = [stack.add_front_door(), stack.add_front_door()]
        for _ in range(3):
            stack.add_worker(options=few)
        sessions = [f"session-{number}" for number in range(SESSIONS)]
        runs = [
            _deliver(doors[plan % 2], session, f"{session}-{plan}") for plan in range(PLANS) for session in sessions
        ]

        _effects(stack, 80)
        handed_over = _busiest(stack, audit)
        handed_over.send_signal(signal.SIGTERM)
        stack.add_worker(options=few, wait=False)
        assert handed_over.wait(20) == 0

        _effects(stack, 200)
        stopped = _busiest(stack, audit)
        stopped.send_signal(signal.SIGSTOP)
        wait_until(lambda: stopped.pid not in map(pid_of, audit.seen.owners.values()), 20, "its sessions to move on")
        stopped.send_signal(signal.SIGCONT)

        _effects(stack, 350)
        stack.kill(_busiest(stack, audit))
        stack.add_worker(options=few, wait=False)

        for number, run_id in enumerate(runs):
            doors[number % 2].ended(run_id, timeout=60)
        wait_until(lambda: not audit.seen.owners, 10, "every session to be given up")
        found, effects = read_ledger(valkey, sessions), stack.effects()
    seen = audit.seen
    assert seen.violations == []
    check(effects, found)
    assert len(found.entries) == SESSIONS * PLANS * CALLS
    # The test is worth something only if sessions really changed hands, in every way.
    assert len(seen.claims) >= 3
    assert seen.claims.total() > SESSIONS
    assert seen.left["yielded"] > 0
    assert seen.left["released"] > 0
    assert set(seen.intents.elements()) >= {effect["pid"] for effect in effects}
    for effect in effects:
        # What happened, happened in the process that owned the session then.
        assert pid_of(effect["attempt"]) == effect["pid"]
    print(json.dumps({"claims": seen.claims, "left": seen.left, "statuses": found.statuses()}))


def _deliver(api: Api, session: str, delivery: str) -> str:
    calls = [("pay_slowly", {"id": f"{delivery}-{number}", "before": 0.02}) for number in range(CALLS)]
    reply = api.trigger(session, delivery, calls, on_error="continue")
    assert reply.status == 202, reply
    return str(reply.body["run_id"])


def _busiest(stack: Stack, audit: OwnerAudit) -> subprocess.Popen[bytes]:
    """The worker that owns most sessions now."""

    def owned() -> Counter[int]:
        return Counter(pid_of(token) for token in list(audit.seen.owners.values()))

    pid = wait_until(owned, 20, "a worker to own something").most_common(1)[0][0]
    return next(worker for worker in stack.workers if worker.pid == pid)


def _effects(stack: Stack, count: int) -> None:
    wait_until(lambda: len(stack.effects()) >= count, 60, f"{count} effects")
