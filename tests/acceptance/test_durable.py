"""Crashes and stops in the middle of work: what was acknowledged stays, what is in flight is drained or unknown."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.checker import check, read_ledger
from tests.support.stack import Api, Stack, dashboards_section, native_section, quick_section
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

LONG = os.environ.get("MUTATION_LEDGER_TESTS") == "long"
DELIVERIES, KILLS = (3000, 20) if LONG else (300, 2)
# A session keeps 50 turns, and every effect must be found in its turn at the end.
SESSIONS = DELIVERIES // 15
SLOW = "mcp__dashboards__create_slow"


class Burst:
    """Hosts that hand in deliveries and send each again, with its id, until it is acknowledged."""

    def __init__(self, api: Api, deliveries: int, hosts: int = 4) -> None:
        self.acknowledged: dict[str, str] = {}
        self.refused: list[int] = []
        self._api = api
        self._deliveries = deliveries
        self._hosts = hosts
        self._threads = [threading.Thread(target=self._host, args=(number,)) for number in range(hosts)]

    def start(self) -> None:
        """All hosts begin."""
        for thread in self._threads:
            thread.start()

    def wait_acknowledged(self, count: int) -> None:
        """Waits until so many deliveries were acknowledged."""
        wait_until(lambda: len(self.acknowledged) >= count, 60, f"{count} deliveries")

    def wait_refused(self) -> None:
        """Waits until a host is told 503 from now on."""
        before = len(self.refused)
        wait_until(lambda: len(self.refused) > before, 20, "a 503")

    def join(self, timeout: float) -> None:
        """Waits until everything was acknowledged."""
        for thread in self._threads:
            thread.join(timeout)
            assert not thread.is_alive(), "a delivery was never acknowledged"

    def _host(self, host: int) -> None:
        for number in range(host, self._deliveries, self._hosts):
            delivery = f"delivery-{number}"
            wait_until(partial(self._ask, delivery, number), 60, delivery)

    def _ask(self, delivery: str, number: int) -> bool:
        try:
            reply = self._api.trigger(f"session-{number % SESSIONS}", delivery, [("pay", {"id": number})])
        except OSError:
            return False
        if reply.status == 503:
            self.refused.append(number)
            return False
        assert reply.status in (200, 202), reply
        self.acknowledged[delivery] = reply.body["run_id"]
        return True


@pytest.mark.acceptance
@pytest.mark.timeout(900 if LONG else 150)
@pytest.mark.proves("C-20", "C-22", "C-25", "C-26")
def test_store_killed_in_a_burst(valkey: ValkeyProcess, tmp_path: Path) -> None:
    with Stack(tmp_path / "stack", valkey.url, native_section() + quick_section(lease=3.0)) as stack:
        api = stack.add_front_door()
        stack.add_worker()
        burst = Burst(api, DELIVERIES)
        burst.start()
        for kill in range(1, KILLS + 1):
            burst.wait_acknowledged(DELIVERIES * kill // (KILLS + 1))
            valkey.kill9()
            # Somebody must have met a dead store, or the kill proved nothing.
            burst.wait_refused()
            valkey.restart()
        burst.join(60)
        for run_id in burst.acknowledged.values():
            api.ended(run_id, timeout=30)
        found = read_ledger(valkey, [f"session-{number}" for number in range(SESSIONS)])
        check(stack.effects(), found)
        assert len(burst.acknowledged) == DELIVERIES
        assert len(found.entries) == DELIVERIES


@pytest.mark.acceptance
@pytest.mark.proves("C-34", "C-56")
def test_sigterm_drains_the_call_in_flight(valkey: ValkeyProcess, tmp_path: Path) -> None:
    # No lease ends while this test runs: only what was given back can be taken up by another worker.
    with Stack(tmp_path / "stack", valkey.url, dashboards_section() + quick_section(lease=60.0)) as stack:
        api = stack.add_front_door()
        worker = stack.add_worker()
        calls = [(SLOW, {"title": f"part {number}", "seconds_after": 1.0}) for number in range(2)]
        run = api.trigger("session-1", "d1", calls).body
        wait_until(lambda: len(stack.effects()) == 1, 20, "the first dashboard")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
        # It began nothing more, told what it had done, and left the rest to others at once.
        now = api.run(run["run_id"])
        assert [call["status"] for call in now["calls"]] == ["completed", "queued"]
        stack.add_worker()
        assert api.ended(run["run_id"])["status"] == "completed"
        check(stack.effects(), read_ledger(valkey, ["session-1"]))


@pytest.mark.acceptance
@pytest.mark.proves("C-34", "C-33")
def test_second_sigterm_stops_at_once(valkey: ValkeyProcess, tmp_path: Path) -> None:
    with Stack(tmp_path / "stack", valkey.url, native_section() + quick_section()) as stack:
        api = stack.add_front_door()
        worker = stack.add_worker()
        run = api.trigger("session-1", "d1", [("pay_slowly", {"id": "cut-off", "after": 60.0})]).body
        wait_until(stack.effects, 20, "the effect")
        worker.send_signal(signal.SIGTERM)
        wait_until(lambda: '"draining"' in stack.logs(), 10, "the drain to begin")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(3) == 143
        stack.add_worker()
        ended = api.ended(run["run_id"])
        assert ended["calls"][0]["outcome"]["status"] == "outcome_unknown"
        assert len(stack.effects()) == 1


@pytest.mark.acceptance
@pytest.mark.proves("C-34", "C-55")
def test_a_stop_past_its_drain_cancels(valkey: ValkeyProcess, tmp_path: Path) -> None:
    config = native_section() + quick_section(stop_drain_seconds=0.5)
    with Stack(tmp_path / "stack", valkey.url, config) as stack:
        api = stack.add_front_door()
        worker = stack.add_worker()
        run = api.trigger("session-1", "d1", [("pay_slowly", {"id": "too-long", "after": 60.0})]).body
        wait_until(stack.effects, 20, "the effect")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(15) == 0
        # Durable before the process has gone, and without another worker.
        (outcome,) = api.outcomes("session-1")
        assert outcome["status"] == "outcome_unknown"
        assert api.run(run["run_id"])["calls"][0]["status"] == "outcome_unknown"


@pytest.mark.acceptance
@pytest.mark.proves("C-55")
def test_cancel_of_a_call_in_flight(valkey: ValkeyProcess, tmp_path: Path) -> None:
    with Stack(tmp_path / "stack", valkey.url, native_section() + quick_section()) as stack:
        api = stack.add_front_door()
        stack.add_worker()
        calls: list[tuple[str, dict[str, Any]]] = [
            ("pay_slowly", {"id": "sent", "after": 60.0}),
            ("pay", {"id": "never"}),
        ]
        run = api.trigger("session-1", "d1", calls).body
        wait_until(stack.effects, 20, "the effect")
        cancel = f"/api/runs/{run['run_id']}/cancel"
        asked = time.monotonic()
        assert api.post(cancel).body["status"] in ("cancelling", "running")
        ended = api.ended(run["run_id"], timeout=6)
        assert time.monotonic() - asked < 5
        assert ended["status"] == "cancelled"
        assert [call["status"] for call in ended["calls"]] == ["outcome_unknown", "cancelled"]
        assert api.post(cancel).status == 200
        check(stack.effects(), read_ledger(valkey, ["session-1"]))

        done = api.trigger("session-1", "d2", [("pay", {"id": "quick"})], wait=20).body
        late = api.post(f"/api/runs/{done['run_id']}/cancel")
        assert (late.status, late.body["code"]) == (409, "run_ended")
