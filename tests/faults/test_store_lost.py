"""The store is emptied, or goes out of reach: nothing is dispatched in doubt, and all recovers when doubt ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.checker import check, read_ledger
from tests.support.proxy import TcpProxy
from tests.support.stack import Api, Stack, native_section, quick_section
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until


def refused(api: Api, delivery: str) -> bool:
    """Whether a new delivery is answered 503, which it may be sent again after."""
    reply = api.trigger("session-1", delivery, [("pay", {"id": delivery})])
    return reply.status == 503 and "Retry-After" in reply.headers


def refused_with(api: Api, code: str, delivery: str) -> bool:
    """Whether a new delivery is answered 503 with this code."""
    reply = api.trigger("session-1", delivery, [("pay", {"id": delivery})])
    return reply.status == 503 and reply.body["code"] == code


@pytest.mark.acceptance
@pytest.mark.proves("C-27", "C-26")
def test_a_store_emptied_under_running_processes(valkey: ValkeyProcess, tmp_path: Path) -> None:
    with Stack(tmp_path / "stack", valkey.url, native_section() + quick_section()) as stack:
        api = stack.add_front_door()
        stack.add_worker()
        api.trigger("session-1", "d1", [("pay", {"id": "before"})], wait=20)
        for number in range(5):
            calls = [("pay_slowly", {"id": f"{number}-{call}", "before": 0.2}) for call in range(20)]
            api.trigger(f"session-{number}", "plan", calls)
        wait_until(lambda: len(stack.effects()) > 5, 20, "work to be under way")
        valkey.client().flushall()
        assert wait_until(lambda: refused_with(api, "store_went_back", "d2"), 5, "the front door to refuse")
        wait_until(lambda: "store_went_back" in stack.logs(), 5, "the workers to notice")
        # Calls that were out may end; nothing new is sent on a ledger that forgot what it promised.
        dispatched = settled_count(stack)
        assert refused_with(api, "store_went_back", "d3")
        assert api.get("/readyz").status == 503
        assert settled_count(stack) == dispatched

        accept(stack)
        wait_until(lambda: api.get("/readyz").status == 200, 20, "the front door to be ready again")
        after = api.trigger("session-9", "d1", [("pay", {"id": "after"})], wait=20)
        assert after.body["status"] == "completed"
        check([effect for effect in stack.effects() if effect["id"] == "after"], read_ledger(valkey, ["session-9"]))


@pytest.mark.acceptance
@pytest.mark.proves("C-24", "C-26")
@pytest.mark.parametrize("trouble", ["full", "replica"])
def test_a_store_that_refuses_writes_for_a_while(valkey: ValkeyProcess, tmp_path: Path, trouble: str) -> None:
    client: Any = valkey.client()
    with Stack(tmp_path / "stack", valkey.url, native_section() + quick_section(lease=10.0)) as stack:
        api = stack.add_front_door()
        stack.add_worker()
        run = api.trigger("session-1", "d1", [("pay_slowly", {"id": number, "after": 0.5}) for number in range(2)]).body
        wait_until(stack.effects, 20, "the first effect")
        if trouble == "full":
            client.config_set("maxmemory", 1)
        else:
            client.replicaof("127.0.0.1", 1)
        assert wait_until(lambda: refused(api, "d2"), 10, "the front door to refuse")
        wait_until(lambda: '"report_waits"' in stack.logs(), 15, "the report of the first call to wait")
        assert len(stack.effects()) == 1
        if trouble == "full":
            client.config_set("maxmemory", 0)
        else:
            client.replicaof("NO", "ONE")
        assert api.ended(run["run_id"])["status"] == "completed"
        found = read_ledger(valkey, ["session-1"])
        assert found.statuses() == {"completed": 2}
        check(stack.effects(), found)


@pytest.mark.acceptance
@pytest.mark.proves("C-26")
def test_a_black_hole(valkey: ValkeyProcess, tmp_path: Path) -> None:
    config = native_section() + quick_section(lease=2.0, checkpoint_wait_seconds=1.0, settlement_wait_seconds=1.0)
    with TcpProxy(valkey.port) as proxy, Stack(tmp_path / "stack", valkey.url, config) as stack:
        api = stack.add_front_door(store_url=proxy.url)
        stack.add_worker(store_url=proxy.url)
        runs = [
            api.trigger(f"session-{number}", "d1", [("pay_slowly", {"id": number, "before": 0.3})]).body["run_id"]
            for number in range(8)
        ]
        wait_until(stack.effects, 20, "work to be under way")
        with proxy.black_hole():
            reply = api.trigger("session-0", "in-the-dark", [("pay", {"id": "in-the-dark"})])
            assert (reply.status, reply.body["admitted"]) == (503, "unknown")
            assert "Retry-After" in reply.headers
        runs.append(wait_until(lambda: retried(api), 20, "the same delivery to be admitted"))
        for run_id in runs:
            ended = api.ended(run_id, timeout=30)
            # What was begun in the dark was put back or is unknown; what came later went through.
            assert ended["calls"][0]["status"] in ("completed", "not_executed", "outcome_unknown")
        check(stack.effects(), read_ledger(valkey, [f"session-{number}" for number in range(8)]))
        after = api.trigger("session-0", "in-the-light", [("pay", {"id": "light"})], wait=20)
        assert after.body["status"] == "completed"


def retried(api: Api) -> str:
    """The run of the delivery that got no answer, '' while it still gets none."""
    reply = api.trigger("session-0", "in-the-dark", [("pay", {"id": "in-the-dark"})])
    return str(reply.body["run_id"]) if reply.status in (200, 202) else ""


def settled_count(stack: Stack) -> int:
    """Effects, once no call is out any more: those in flight end within their 0.2 s."""
    counts: list[int] = []

    def quiet() -> bool:
        counts.append(len(stack.effects()))
        return len(counts) > 100 and counts[-1] == counts[-100]

    wait_until(quiet, 20, "effects to end")
    return counts[-1]


def accept(stack: Stack) -> None:
    """A person has looked."""
    command = [sys.executable, "-m", "ledger.cli", "store", "accept", "--yes", "--config", str(stack.config)]
    command += ["--redis-url", stack.store_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
