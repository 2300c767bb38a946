"""Replies lost to what is not on a mutation's path: erasure and its sweep, going to sleep, first meetings, acceptance.

And none is forgotten: every script that writes is named by a test here, in `test_lost_replies` or in row 12.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.acceptance import accept_store
from ledger.agreement import beat_policy
from ledger.config import RedisConfig
from ledger.counts import add_counts
from ledger.declared import declare_tools
from ledger.erasure import clear_dirty, erase_session, sweep_retention
from ledger.errors import StoreUnavailable, StoreWentBack
from ledger.policy import Policy
from ledger.store import StoreSettings, SyncStore
from ledger.store.call import ScriptCall
from ledger.store.scripts import SCRIPTS
from ledger.tombstone import pin_key
from tests.faults.harness.losing import ERASER, Bench, answered, asleep, lose, plan, sid, verify
from tests.faults.rows import network
from tests.support import readbacks, snapshot
from tests.support.direct import DAY_MS, SHARDS, Direct, shard_of
from tests.support.ledger import SHARD, TENANT, Ledger, key
from tests.support.ledger import plan as ledger_plan
from tests.support.proxy import TcpProxy
from tests.support.scripted import marker, preload
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

READ_ONLY = {"erasure_left", "list_sessions", "read_catalogs", "read_journal", "read_session", "store_time"}
SAME_ANYWHERE = {
    "confirm_shard": "raises a counter, so that there is something to confirm",
    "check_shard": "writes `refused` at most, and every new connection asks it anew",
    "share_catalogs": "says what is listed now, again every few seconds; nothing that must survive",
    "read_approvals": "writes only the expiry that any script writes which meets a request past its time",
    "read_run": "the same",
}


def source_marker(script: str) -> bytes:
    """What a request holds that brings the whole script along."""
    return SCRIPTS[script].source.encode()[-100:]


@pytest.mark.acceptance
@pytest.mark.proves("C-22", "C-82")
def test_reply_to_an_erasure(bench: Bench) -> None:
    ended = bench.api.ended(bench.api.trigger("erase", "d1", plan("erase")).body["run_id"])
    assert ended["status"] == "completed"
    lose(bench, bench.door, "erase_session", saying=b"erased")
    eraser = bench.api.as_(ERASER)
    # Asked for again, it is under way, or deleted already.
    assert answered(lambda: eraser.request("DELETE", "/api/sessions/erase", None, {})).status in (202, 404)
    wait_until(lambda: eraser.request("DELETE", "/api/sessions/erase", None, {}).status == 404, 30, "it to be deleted")
    assert bench.door.lost == 1
    assert bench.api.get(f"/api/runs/{ended['run_id']}").status == 404
    assert bench.api.trigger("erase", "d1", plan("erase")).body["code"] == "delivery_retired"
    left = snapshot.holders(snapshot.take(bench.valkey.client()), sid("erase").decode())
    # What a claim was answered is remembered until its lease would have ended (C-30).
    assert [name for name in left if ":claim:" not in name] == []


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
def test_replies_at_the_first_meeting(valkey: ValkeyProcess) -> None:
    client: Any = valkey.client()
    with TcpProxy(valkey.port) as proxy:
        store = SyncStore(StoreSettings(RedisConfig(url=proxy.url)))
        # First shard 0 is asked, which decides the store's id, then all of them at once.
        for asked, known in ((source_marker("init_shard"), 1), (b"ml:{01}:seq", SHARDS)):
            proxy.lose_reply(asked)
            with pytest.raises(StoreUnavailable):
                store.open()
            assert len(client.keys("ml:*:seq")) == known
        store.open()
        ids = {client.hget(f"ml:{{{shard:02x}}}:seq", "store") for shard in range(SHARDS)}
        assert ids == {store.view.ids[0]}
        store.close()


@pytest.mark.proves("C-22", "C-27")
def test_reply_to_an_acceptance(valkey: ValkeyProcess) -> None:
    with TcpProxy(valkey.port) as proxy, Direct(valkey.url) as direct:
        direct.admit("accepted", "d1", plan("accepted"))
        valkey.client().flushall()
        with pytest.raises(StoreWentBack):
            direct.admit("accepted", "d2", plan("accepted-2"))
        proxy.lose_reply(source_marker("accept_shard"))
        with pytest.raises(StoreUnavailable):
            accept_store(StoreSettings(RedisConfig(url=proxy.url)))
        assert proxy.lost == 1
        # Half accepted is not accepted: most shards still refuse.
        with pytest.raises(StoreWentBack):
            direct.admit("accepted", "d2", plan("accepted-2"))
        accepted = accept_store(StoreSettings(RedisConfig(url=proxy.url)))
        assert direct.admit("accepted", "d2", plan("accepted-2")).how == "new"
        assert {direct.store.view.ids[shard_of("accepted")]} == {accepted.store_id.encode()}


def _erased(ledger: Ledger) -> ScriptCall[Any]:
    """A mark of erased data to take back."""
    _to_delete(ledger)
    return clear_dirty(SHARD, int(ledger.raw.get(key("dirty"))))


def _to_delete(ledger: Ledger) -> ScriptCall[Any]:
    """An erased session to delete."""
    ledger.admit(ledger_plan(1))
    ledger.run(erase_session(TENANT, "s1", DAY_MS, 1))
    return sweep_retention(SHARD, DAY_MS, 1000, interval_ms=1)


def _unknown(ledger: Ledger) -> ScriptCall[Any]:
    """A question to take."""
    readbacks.unknown(ledger)
    return readbacks.claim()


def _asked(ledger: Ledger) -> ScriptCall[Any]:
    """A question to answer."""
    (question,) = ledger.run(_unknown(ledger)).questions
    return readbacks.note(question)


POLICY = Policy({"mcp__d__create": "approve"}, frozenset({"mcp__d__patch"}), frozenset(), {})
OF_PROCESSES: dict[str, Callable[[Ledger], ScriptCall[Any]]] = {
    "beat_policy": lambda _: beat_policy(POLICY, "a-process"),
    "declare_tools": lambda _: declare_tools(SHARD, ["mcp__d__patch"]),
    "pin_tombstone_key": lambda _: pin_key(b"k" * 32),
    "clear_dirty": _erased,
    "sweep_retention": _to_delete,
    "add_counts": lambda _: add_counts("a-process", 1, {"attempts:completed": 3}),
    "claim_readbacks": _unknown,
    "note_readback": _asked,
}


@pytest.mark.proves("C-22")
@pytest.mark.parametrize("script", OF_PROCESSES)
def test_replies_to_what_processes_tell_the_store(store_url: str, valkey_session: ValkeyProcess, script: str) -> None:
    client = valkey_session.client()
    with TcpProxy(valkey_session.port) as proxy, contextlib.closing(Ledger(store_url)) as ledger:
        call = OF_PROCESSES[script](ledger)
        store = SyncStore(StoreSettings(RedisConfig(url=proxy.url, shards=1)))
        store.open()
        preload(valkey_session, script)
        before = snapshot.take(client)
        proxy.lose_reply(marker(script))
        with pytest.raises(StoreUnavailable):
            store.run(call)
        once = snapshot.take(client)
        assert snapshot.differences(before, once)
        store.run(call)
        store.close()
        # What says when somebody was last heard of, or swept, moves on, and nothing else.
        assert snapshot.differences(once, snapshot.take(client)).keys() <= {key("policy:alive"), key("swept:retention")}


def _named_where_replies_are_lost(path: Path) -> Iterator[str]:
    """Every string in test functions that lose a reply."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        called = {getattr(inner.func, "id", getattr(inner.func, "attr", "")) for inner in _calls(node)}
        if isinstance(node, ast.FunctionDef) and called & {"lose", "lose_reply"}:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    yield inner.value


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


def test_every_script_that_writes_has_a_lost_reply() -> None:
    here = Path(__file__).parent
    named = {
        name
        for file in ("test_lost_replies.py", "test_lost_replies_rest.py")
        for name in _named_where_replies_are_lost(here / file)
    }
    proved = named | network.SCRIPTS.keys() | OF_PROCESSES.keys()
    assert SCRIPTS.keys() - proved - READ_ONLY - SAME_ANYWHERE.keys() == set()
    assert READ_ONLY | SAME_ANYWHERE.keys() <= SCRIPTS.keys()
