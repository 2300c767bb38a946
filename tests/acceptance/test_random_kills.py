"""200 deliveries while workers are killed at random: nothing happens twice, nothing is lost, nothing is made up."""

from __future__ import annotations

import os
import random
import secrets
import subprocess
from pathlib import Path

import pytest

from tests.support.checker import check, read_ledger
from tests.support.stack import Api, Stack, native_section, quick_section
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

LONG = os.environ.get("MUTATION_LEDGER_TESTS") == "long"
DELIVERIES, SESSIONS, KILLS = (2000, 100, 60) if LONG else (200, 20, 10)
KEPT_SEEDS: tuple[str, ...] = ()
"""Seeds that once failed."""
FRESH = os.environ.get("MUTATION_LEDGER_SEED", "fresh")


@pytest.mark.acceptance
@pytest.mark.timeout(900 if LONG else 180)
@pytest.mark.proves("C-13", "C-24", "C-30", "C-33")
@pytest.mark.parametrize("seed", [FRESH, *KEPT_SEEDS])
def test_workers_killed_at_random(valkey: ValkeyProcess, tmp_path: Path, seed: str) -> None:
    if seed == "fresh":
        seed = str(secrets.randbits(32))
    print(f"MUTATION_LEDGER_SEED={seed}")
    dice = random.Random(int(seed))
    config = native_section() + quick_section(lease=2.0)
    with Stack(tmp_path / "stack", valkey.url, config) as stack:
        api = stack.add_front_door()
        workers = [stack.add_worker(), stack.add_worker()]
        sessions = [f"session-{number}" for number in range(SESSIONS)]
        runs = [_deliver(api, dice, sessions[number % SESSIONS], number) for number in range(DELIVERIES)]
        for effects in sorted(dice.sample(range(1, DELIVERIES * 3 // 4), KILLS)):
            # Progress, not time, says when: so the kills land in the middle of the work on any machine.
            _wait_for_effects(stack, effects)
            _replace_one(stack, workers, dice)
        ended = [api.ended(run_id, timeout=60) for run_id in runs]
        found = read_ledger(valkey, sessions)
        effects_log = stack.effects()
    assert len(found.entries) == DELIVERIES
    check(effects_log, found)
    for run in ended:
        (call,) = run["calls"]
        assert call["outcome"] == found.entries[call["mutation_id"]].outcome()
    print(f"{dict(found.statuses())}, {len(effects_log)} effects")


def _deliver(api: Api, dice: random.Random, session: str, number: int) -> str:
    arguments = {"id": number, "before": dice.uniform(0, 0.15), "after": dice.uniform(0, 0.1)}
    reply = api.trigger(session, f"delivery-{number}", [("pay_slowly", arguments)])
    assert reply.status == 202, reply
    return str(reply.body["run_id"])


def _wait_for_effects(stack: Stack, count: int) -> None:
    wait_until(lambda: len(stack.effects()) >= count, 60, f"{count} effects")


def _replace_one(stack: Stack, workers: list[subprocess.Popen[bytes]], dice: random.Random) -> None:
    victim = dice.randrange(len(workers))
    stack.kill(workers[victim])
    workers[victim] = stack.add_worker(wait=False)
