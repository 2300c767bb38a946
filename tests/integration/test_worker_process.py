"""A worker process as a whole: nothing in it dies silently, and a stop loses nothing."""

from __future__ import annotations

import ctypes
import signal
from pathlib import Path
from typing import Any

import pytest

from ledger.config import load
from ledger.faultpoints import VARIABLE
from ledger.identity import session_hash
from ledger.plugins import load_plugins
from tests.support.checker import check, read_ledger
from tests.support.direct import Direct, shard_of
from tests.support.proxy import TcpProxy
from tests.support.scripted import marker
from tests.support.stack import Stack, native_section, quick_section
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

CONFIG = native_section() + quick_section(lease=2.0)


@pytest.mark.acceptance
@pytest.mark.parametrize("task", ["sweep.asked", "renew.asked", "claim.asked"])
def test_a_background_task_that_fails_ends_the_process(valkey: ValkeyProcess, tmp_path: Path, task: str) -> None:
    """Left alone it would be a worker that is alive for everybody and does half of its work."""
    with Stack(tmp_path / "stack", valkey.url, CONFIG, env={VARIABLE: f"{task}:1:raise"}) as stack:
        with Direct(valkey.url) as direct:
            direct.admit("session", "d1", [("pay_slowly", {"id": 1, "after": 3.0})])
        worker = stack.add_worker(wait=False)
        assert worker.wait(20) == 1
        assert '"loop_failed"' in stack.logs()


@pytest.mark.acceptance
@pytest.mark.proves("C-33")
def test_a_session_whose_path_fails_is_taken_up_again(valkey: ValkeyProcess, tmp_path: Path) -> None:
    with Stack(tmp_path / "stack", valkey.url, CONFIG, env={VARIABLE: "settle.asked:1:raise"}) as stack:
        worker = stack.add_worker()
        with Direct(valkey.url) as direct:
            direct.admit("session", "d1", [("pay", {"id": 1}), ("pay", {"id": 2})], on_error="continue")
        wait_until(lambda: len(stack.effects()) == 2, 15, "the second call")
        assert worker.poll() is None
        statuses = {"outcome_unknown": 1, "completed": 1}
        wait_until(lambda: read_ledger(valkey, ["session"]).statuses() == statuses, 10, "both outcomes")
        check(stack.effects(), read_ledger(valkey, ["session"]))


@pytest.mark.acceptance
@pytest.mark.proves("C-34")
def test_what_a_claim_brings_during_a_stop_is_worked_off(valkey: ValkeyProcess, tmp_path: Path) -> None:
    with TcpProxy(valkey.port) as proxy, Stack(tmp_path / "stack", valkey.url, CONFIG) as stack:
        worker = stack.add_worker(store_url=proxy.url)
        answer = proxy.hold_reply(marker("claim_sessions"), saying=session_hash("acme", "session").encode())
        # Under the worker's own policy, so that the claim begins the first call.
        policy = load_plugins(load(stack.config)).policy
        with Direct(valkey.url, policy_digest=policy.digest) as direct:
            direct.admit("session", "d1", [("pay", {"id": 1}), ("pay", {"id": 2})])
        assert answer.arrived.wait(10)
        worker.send_signal(signal.SIGTERM)
        wait_until(lambda: '"stopping"' in stack.logs(), 10, "the stop to begin")
        answer.release()
        assert worker.wait(20) == 0
        # The first was begun by the claim and is carried out; the second goes to somebody else.
        assert [effect["id"] for effect in stack.effects()] == [1]
        assert read_ledger(valkey, ["session"]).statuses() == {"completed": 1}


@pytest.mark.acceptance
@pytest.mark.proves("C-34")
def test_a_stop_right_after_the_start(valkey: ValkeyProcess, tmp_path: Path) -> None:
    with Stack(tmp_path / "stack", valkey.url, CONFIG) as stack:
        worker = stack.add_worker()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(10) == 0


@pytest.mark.acceptance
@pytest.mark.proves("C-34")
def test_a_stop_that_another_thread_is_told_of(valkey: ValkeyProcess, tmp_path: Path) -> None:
    """As it may be when a stopped process is continued, while the main thread is in RQ's blocking read."""
    with Stack(tmp_path / "stack", valkey.url, CONFIG) as stack:
        worker = stack.add_worker()
        client = valkey.client()
        wait_until(lambda: any(one["cmd"].startswith("blmove") for one in client.client_list()), 10, "RQ to wait")
        client.close()
        threads = [int(path.name) for path in Path(f"/proc/{worker.pid}/task").iterdir()]
        other = max(tid for tid in threads if tid != worker.pid)
        assert ctypes.CDLL(None, use_errno=True).tgkill(worker.pid, other, signal.SIGTERM) == 0
        assert worker.wait(10) == 0


@pytest.mark.acceptance
@pytest.mark.proves("C-34")
def test_a_stop_while_the_store_does_not_answer(valkey: ValkeyProcess, tmp_path: Path) -> None:
    """Every wait on the way out is bounded, also RQ's own."""
    quick = {"stop_drain_seconds": 0.5, "settlement_wait_seconds": 0.5, "checkpoint_wait_seconds": 0.5}
    config = native_section() + quick_section(lease=5.0, **quick)
    with TcpProxy(valkey.port) as proxy, Stack(tmp_path / "stack", valkey.url, config) as stack:
        worker = stack.add_worker(store_url=proxy.url)
        with Direct(valkey.url) as direct:
            direct.admit("session", "d1", [("pay_slowly", {"id": 1, "after": 1.0})])
        wait_until(stack.effects, 15, "the effect")
        with proxy.black_hole():
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(60) == 0


@pytest.mark.acceptance
@pytest.mark.proves("C-30")
def test_workers_with_other_leases_leave_each_other_s_alone(valkey: ValkeyProcess, tmp_path: Path) -> None:
    """The sweep of a worker with short leases shortens no long one."""
    lease = "MUTATION_LEDGER__TIMING__LEASE_SECONDS"
    config = native_section() + quick_section(lease=2.0, stop_drain_seconds=0.5)
    with Stack(tmp_path / "stack", valkey.url, config, env={lease: "60"}) as stack:
        stack.add_worker()
        with Direct(valkey.url) as direct:
            direct.admit("session", "d1", [("pay_slowly", {"id": 1, "after": 100.0})])
        wait_until(stack.effects, 20, "the call to begin")
        stack.env[lease] = "1"
        stack.add_worker()
        client: Any = valkey.client()
        shard, sid = f"ml:{{{shard_of('session'):02x}}}:", session_hash("acme", "session")
        seconds, _ = client.time()
        swept: set[bytes] = set()
        # The two workers sweep in turns, whoever comes first.
        wait_until(lambda: len(swept | _noted(swept, client.get(f"{shard}swept"))) > 8, 40, "sweeps of both")
        assert client.zscore(f"{shard}owned", sid) > (seconds + 30) * 1000
        client.close()


def _noted(seen: set[bytes], value: bytes | None) -> set[bytes]:
    if value is not None:
        seen.add(value)
    return seen
