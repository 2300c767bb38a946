"""Many handlers that wait for a person in one worker: what each costs, and how soon one goes on.

`make parked` parks 2,000 of them and shows the figures; `make test` parks 150.
"""

from __future__ import annotations

import os
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ledger.records import Run
from tests.support.direct import SHARDS, Direct
from tests.support.turns import Turns, call
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

LONG = os.environ.get("MUTATION_LEDGER_TESTS") == "long"
PARKED = 2000 if LONG else 150
RESUMED = 20
QUIET_SECONDS = 4.0
OTHERS, CALLS, ROUNDS = 20, 16, 3
KIB = 1024
TICKS = os.sysconf("SC_CLK_TCK")


def resident_kib(pid: int) -> int:
    """Memory of a process that is in RAM now."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resumed(turns: Turns, run: Run) -> float:
    """Seconds from the decision to the durable end of the run, which makes one mutation."""
    asked = turns.asked(run)
    begin = time.monotonic()
    turns.decide(asked)
    turns.ended(run)
    return time.monotonic() - begin


def speed(valkey: ValkeyProcess, worker: int, name: str) -> tuple[float, float]:
    """Mutations a second of sessions that have nothing to do with the parked ones, and CPU ms of the worker for each.

    The best of a few rounds: other programs of the machine take part in every one.
    """
    client: Any = valkey.client()

    def outcomes() -> int:
        return sum(client.xlen(f"ml:{{{shard:02x}}}:outcomes") for shard in range(SHARDS))

    def settled(count: int) -> bool:
        return outcomes() == count

    rates, costs = [], []
    with Direct(valkey.url) as direct:
        for n in range(ROUNDS):
            before = outcomes()
            # The first one wakes the worker, which is then awake for the rest.
            direct.admit(f"{name}-{n}", "d0", [("pay", {"id": f"{name}-{n}"})])
            wait_until(partial(settled, before + 1), 20, "the worker to be awake")
            begin, busy = time.monotonic(), cpu_seconds(worker)
            for session in range(OTHERS):
                calls = [("pay", {"id": f"{name}-{n}-{session}-{one}"}) for one in range(CALLS)]
                direct.admit(f"{name}-{n}-{session}", "d1", calls)
            wait_until(partial(settled, before + 1 + OTHERS * CALLS), 60, "all of them to be done")
            rates.append(OTHERS * CALLS / (time.monotonic() - begin))
            costs.append((cpu_seconds(worker) - busy) * 1000 / (OTHERS * CALLS))
    client.close()
    return max(rates), min(costs)


@pytest.mark.proves("C-31")
@pytest.mark.timeout(600)
def test_parked_handlers_cost_memory_only_and_one_goes_on_at_once(tmp_path: Path, valkey: ValkeyProcess) -> None:
    turns = Turns(tmp_path / "turns", valkey.url, lease=30.0)
    try:
        worker = turns.stack.add_worker()
        client = valkey.client()
        # The first ones pay for what is loaded and allocated once.
        warm = [turns.deliver("d1", call("approved_pay", id=f"w{n}"), session=f"w{n}") for n in range(10)]
        for run in warm:
            turns.asked(run)
        alone, alone_ms = speed(valkey, worker.pid, "alone")
        before, stored = resident_kib(worker.pid), client.info("memory")["used_memory"]
        runs = [turns.deliver("d1", call("approved_pay", id=f"p{n}"), session=f"p{n}") for n in range(PARKED)]
        left = set(runs)

        def all_wait() -> bool:
            left.difference_update([run for run in left if turns.read(run).status == "waiting_for_approval"])
            return not left

        wait_until(all_wait, 300, "every handler to wait")
        each = (resident_kib(worker.pid) - before) / PARKED
        each_stored = (client.info("memory")["used_memory"] - stored) / PARKED / KIB
        busy, since = cpu_seconds(worker.pid), time.monotonic()
        wait_until(lambda: time.monotonic() > since + QUIET_SECONDS, QUIET_SECONDS + 5, "a quiet while")
        load = (cpu_seconds(worker.pid) - busy) / QUIET_SECONDS
        beside, beside_ms = speed(valkey, worker.pid, "beside")
        times = [resumed(turns, run) for run in runs[:RESUMED]]
        print(
            f"\n{PARKED} parked: {each:.1f} KiB a turn in the worker, {each_stored:.1f} KiB in the store, "
            f"{load:.1%} of a core while they wait, one goes on in {statistics.median(times) * 1000:.1f} ms "
            f"(worst {max(times) * 1000:.1f} ms); other sessions: {beside:.0f} mutations a second "
            f"at {beside_ms:.2f} ms of CPU, {alone:.0f} at {alone_ms:.2f} ms without"
        )
        assert each < 48
        assert each_stored < 8
        assert load < 0.5
        assert statistics.median(times) < 1.0
        # Speed swings with the machine's other work; what a mutation costs the worker does not.
        assert beside > alone / 5
        assert beside_ms < 2 * alone_ms + load * 1000 / beside
        parked = [name for name in turns.effects() if name.startswith("p")]
        assert sorted(parked) == sorted(f"p{n}" for n in range(RESUMED))
    finally:
        turns.close()
