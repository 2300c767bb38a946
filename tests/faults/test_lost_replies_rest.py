"""Replies lost to what is not on a mutation's path: erasure and its sweep, going to sleep, first meetings, acceptance.

And none is forgotten: every script that writes is named by a test here, in `test_lost_replies` or in row 12.
"""

from __future__ import annotations

from typing import Any

import pytest

from ledger.config import RedisConfig
from ledger.errors import StoreUnavailable
from ledger.store import StoreSettings, SyncStore
from ledger.store.scripts import SCRIPTS
from tests.faults.harness.losing import ERASER, Bench, answered, asleep, lose, plan, sid, verify
from tests.support import snapshot
from tests.support.direct import SHARDS, Direct
from tests.support.proxy import TcpProxy
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

READ_ONLY = {"erasure_left", "list_sessions", "read_journal", "read_session", "store_time"}
SAME_AGAIN = {
    # It writes `refused` at most, and every connection that is made asks it anew.
    "check_shard",
    # They read; what they meet on the way, an approval past its time, is what every script writes the same way.
    "read_approvals", "read_run",
}  # fmt: skip


def source_marker(script: str) -> bytes:
    """What a request holds that brings the whole script along."""
    return SCRIPTS[script].source.encode()[-100:]


@pytest.mark.acceptance
@pytest.mark.proves("C-22", "C-82")
def test_replies_to_an_erasure_and_to_its_sweep(bench: Bench) -> None:
    ended = bench.api.ended(bench.api.trigger("erase", "d1", plan("erase")).body["run_id"])
    assert ended["status"] == "completed"
    # Other sweeps find nothing to delete and answer so.
    lose(bench, bench.worker, "sweep_retention", saying=b"*6\r\n:")
    lose(bench, bench.door, "erase_session", saying=b"erased")
    eraser = bench.api.as_(ERASER)
    assert answered(lambda: eraser.request("DELETE", "/api/sessions/erase", None, {})).status == 202
    wait_until(lambda: eraser.request("DELETE", "/api/sessions/erase", None, {}).status == 404, 30, "it to be deleted")
    assert (bench.door.lost, bench.worker.lost) == (1, 1)
    assert bench.api.get(f"/api/runs/{ended['run_id']}").status == 404
    assert bench.api.trigger("erase", "d1", plan("erase")).body["code"] == "delivery_retired"
    left = snapshot.holders(snapshot.take(bench.valkey.client()), sid("erase").decode())
    assert left == []


@pytest.mark.acceptance
@pytest.mark.proves("C-22", "C-31")
def test_reply_to_a_worker_that_goes_to_sleep(bench: Bench) -> None:
    lose(bench, bench.worker, "switch_off", saying=b"off")
    for name in ("before", "after"):
        run = bench.api.trigger(f"sleep-{name}", "d1", plan(f"sleep-{name}")).body
        assert bench.api.ended(run["run_id"])["status"] == "completed"
        verify(bench, f"sleep-{name}", {"completed": 2}, rows=2)
        wait_until(lambda: bench.worker.lost == 1, 20, "the reply to be lost")
        asleep(bench)


@pytest.mark.proves("C-22", "C-27")
@pytest.mark.parametrize("nth", [1, 2, 9])
def test_replies_at_the_first_meeting(valkey: ValkeyProcess, nth: int) -> None:
    with TcpProxy(valkey.port) as proxy:
        store = SyncStore(StoreSettings(RedisConfig(url=proxy.url)))
        # The first shard decides the store's id; the others are asked in one go.
        proxy.lose_reply(source_marker("init_shard"), saying=b"" if nth == 1 else f":{SHARDS}".encode() * 1)
        if nth > 1:
            proxy.disarm()
            first = Direct(valkey.url)
            with first:
                proxy.lose_reply(source_marker("init_shard"))
                with pytest.raises(StoreUnavailable):
                    store.open()
        else:
            with pytest.raises(StoreUnavailable):
                store.open()
        store.open()
        client: Any = valkey.client()
        ids = {client.hget(f"ml:{{{shard:02x}}}:seq", "store") for shard in range(SHARDS)}
        assert ids == {store.view.ids[0]}
        store.close()
