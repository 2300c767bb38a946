"""C03: the store stands still while a worker claims, begins or reports; a claim that is asked for again is its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from ledger.config import RedisConfig
from ledger.errors import StoreUnavailable
from ledger.store import StoreSettings, SyncStore
from ledger.store.dialing import dial
from tests.support.checker import check, read_ledger
from tests.support.proxy import TcpProxy
from tests.support.scripted import marker
from tests.support.stack import Stack, native_section, quick_section
from tests.support.valkey import ValkeyProcess
from tests.support.wait import passed, wait_until

# Past every wait and past the lease: 12 s in the case, against leases of 30 s and waits of 5 s.
STALL_SECONDS = 12.0 if os.environ.get("MUTATION_LEDGER_TESTS") == "long" else 4.0
CONFIG = native_section() + quick_section(lease=2.0, checkpoint_wait_seconds=1.0, settlement_wait_seconds=1.0)


def _stall(valkey: ValkeyProcess) -> None:
    os.kill(valkey.pid, signal.SIGSTOP)
    try:
        wait_until(passed(STALL_SECONDS), STALL_SECONDS + 5, "the store to stand still")
    finally:
        os.kill(valkey.pid, signal.SIGCONT)


@pytest.mark.acceptance
@pytest.mark.proves("C-22", "C-30", "C-33")
@pytest.mark.parametrize("script", ["claim_sessions", "settle_attempt"])
def test_a_store_that_stands_still_right_after_it_did_what_was_asked(
    valkey: ValkeyProcess, tmp_path: Path, script: str
) -> None:
    """The claim, and the report with its XADD, have run; the answer comes 12 s too late for whoever waits for it."""
    with TcpProxy(valkey.port) as proxy, Stack(tmp_path / "stack", valkey.url, CONFIG) as stack:
        api = stack.add_front_door()
        stack.add_worker(store_url=proxy.url)
        api.trigger("warm-up", "d1", [("pay", {"id": "warm-up"})], wait=20)
        held = proxy.hold_reply(marker(script), saying=b"c03" if script == "claim_sessions" else b"")
        run = api.trigger("c03", "d1", [("pay", {"id": "c03"})]).body
        assert held.arrived.wait(10)
        # Whoever waits for the answer gives up meanwhile, and so it never comes.
        _stall(valkey)
        ended = api.ended(run["run_id"], timeout=40)
        # Nobody's for ever is what must not be: the session goes on.
        assert api.trigger("c03", "d2", [("pay", {"id": "after"})], wait=30).body["status"] == "completed"
        found = read_ledger(valkey, ["warm-up", "c03"])
        check(stack.effects(), found)
        (call,) = ended["calls"]
        made = [effect for effect in stack.effects() if effect["id"] == "c03"]
        assert len(made) == (0 if call["status"] in ("not_executed", "outcome_unknown") and not made else 1)
        records = [row["record"] for row in found.stream if row["mutation_id"] == call["mutation_id"]]
        # One event a change, none twice.
        assert len(records) == len(set(records)) >= 1
        if script == "settle_attempt":
            assert (call["status"], len(records)) == ("completed", 1)


def test_no_client_of_the_ledger_sends_anything_again_by_itself(valkey: ValkeyProcess) -> None:
    connection = dial(StoreSettings(RedisConfig(url=valkey.url)), None)
    try:
        assert connection.retry.get_retries() == 0
    finally:
        connection.disconnect()
    with TcpProxy(valkey.port) as proxy:
        store = SyncStore(StoreSettings(RedisConfig(url=proxy.url)))
        store.command([["SET", "counted", 0]])
        proxy.lose_reply(b"INCR")
        with pytest.raises(StoreUnavailable):
            store.command([["INCR", "counted"]])
        store.close()
    assert valkey.client().get("counted") == b"1"
