"""No lost wake-up: whatever dies between "ready" and "claimed", the session runs within seconds."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.support.checker import check, read_ledger
from tests.support.direct import Direct
from tests.support.proxy import TcpProxy
from tests.support.scripted import marker, preload
from tests.support.stack import Api, Stack, native_section, quick_section
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

LEASE_SECONDS = 2.0
PROMISED_SECONDS = 5.0
CONFIG = native_section() + quick_section(lease=LEASE_SECONDS, linger=1.0)


def runs_within(stack: Stack, payment: str, seconds: float) -> None:
    """The payment's effect happens in time, counted from now."""
    wait_until(lambda: payment in [effect["id"] for effect in stack.effects()], seconds, f"{payment} to be paid")


def asleep(valkey: ValkeyProcess) -> None:
    """No worker claims and none has promised to."""
    client = valkey.client()
    wait_until(lambda: not client.keys("ml:*:awake"), 15, "claiming to go off")


def settled_as(valkey: ValkeyProcess, sessions: list[str], statuses: dict[str, int]) -> None:
    """Waits until the sessions' mutations stand so; an effect is seen before it is settled."""
    wait_until(lambda: read_ledger(valkey, sessions).statuses() == statuses, 10, f"{statuses}")


def forget_rq(valkey: ValkeyProcess) -> int:
    """Deletes everything that RQ keeps; how many keys that were."""
    client = valkey.client()
    return sum(client.delete(key) for key in client.scan_iter("{rq}*"))


@pytest.mark.acceptance
@pytest.mark.proves("C-31")
def test_nobody_was_woken(valkey: ValkeyProcess, tmp_path: Path) -> None:
    with Stack(tmp_path / "stack", valkey.url, CONFIG) as stack, Direct(valkey.url) as direct:
        stack.add_worker()
        asleep(valkey)
        # Whoever admitted this died before it could enqueue anything.
        admitted = direct.admit("session-1", "d1", [("pay", {"id": "unwoken"})])
        assert admitted.wake
        runs_within(stack, "unwoken", PROMISED_SECONDS)

        assert forget_rq(valkey) > 0
        assert not direct.admit("session-2", "d1", [("pay", {"id": "while-on"})]).wake
        runs_within(stack, "while-on", PROMISED_SECONDS)
        # RQ's own record of the worker is gone; the job queue must still be able to wake it.
        asleep(valkey)
        forget_rq(valkey)
        api = stack.add_front_door()
        run = api.trigger("session-3", "d1", [("pay", {"id": "without-rq"})]).body
        runs_within(stack, "without-rq", PROMISED_SECONDS)
        assert api.ended(run["run_id"])["status"] == "completed"
        sessions = ["session-1", "session-2", "session-3"]
        settled_as(valkey, sessions, {"completed": 3})
        check(stack.effects(), read_ledger(valkey, sessions))


@pytest.mark.acceptance
@pytest.mark.proves("C-31")
def test_front_door_killed_between_script_and_enqueue(valkey: ValkeyProcess, tmp_path: Path) -> None:
    with TcpProxy(valkey.port) as proxy, Stack(tmp_path / "stack", valkey.url, CONFIG) as stack:
        stack.add_worker()
        api = stack.add_front_door(store_url=proxy.url)
        (door,) = stack.front_doors
        asleep(valkey)
        preload(valkey, "admit_delivery")
        proxy.lose_reply(marker("admit_delivery"), then=lambda: stack.kill_group(door), saying=b"\r\nnew\r\n")
        asking = threading.Thread(target=_ask, args=(api,))
        asking.start()
        wait_until(lambda: proxy.lost == 1, 10, "the admission to run")
        runs_within(stack, "orphaned", PROMISED_SECONDS)
        asking.join(20)
        # The host's retry finds what was admitted.
        again = stack.add_front_door().trigger("session-1", "d1", [("pay", {"id": "orphaned"})], wait=10)
        assert again.body["calls"][0]["status"] in ("completed", "refused")
        assert len(stack.effects()) == 1


@pytest.mark.acceptance
@pytest.mark.proves("C-31", "C-33")
def test_worker_killed_while_claiming_is_on(valkey: ValkeyProcess, tmp_path: Path) -> None:
    with Stack(tmp_path / "stack", valkey.url, CONFIG) as stack:
        first = stack.add_worker()
        api = stack.add_front_door()
        api.trigger("session-1", "d1", [("pay", {"id": "warm-up"})], wait=10)
        stack.add_worker()
        # The first has just promised to look, two seconds ahead; the second is off.
        stack.kill(first)
        api.trigger("session-2", "d1", [("pay", {"id": "after-the-kill"})])
        runs_within(stack, "after-the-kill", PROMISED_SECONDS)


@pytest.mark.acceptance
@pytest.mark.proves("C-30", "C-33")
def test_worker_killed_right_after_its_claim(valkey: ValkeyProcess, tmp_path: Path) -> None:
    with Stack(tmp_path / "stack", valkey.url, CONFIG) as stack, Direct(valkey.url) as direct:
        stack.add_worker()
        asleep(valkey)
        calls = [("pay", {"id": "left-behind"}), ("pay", {"id": "goes-on"})]
        direct.admit("session-1", "d1", calls, on_error="continue")
        (claimed,) = direct.claim("session-1", lease_ms=int(LEASE_SECONDS * 1000))
        started = time.monotonic()
        runs_within(stack, "goes-on", LEASE_SECONDS + PROMISED_SECONDS)
        assert time.monotonic() - started > LEASE_SECONDS / 2
        assert claimed.token
        settled_as(valkey, ["session-1"], {"outcome_unknown": 1, "completed": 1})
        check(stack.effects(), read_ledger(valkey, ["session-1"]))


def _ask(api: Api) -> None:
    try:
        api.trigger("session-1", "d1", [("pay", {"id": "orphaned"})])
    except OSError:
        return
