"""The store client of threads: checked before anything is sent, shared safely, and never sent twice."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from ledger.acceptance import accept_store
from ledger.admission import Admitted, admit_delivery
from ledger.config import RedisConfig
from ledger.durability import Report
from ledger.errors import StoreUnavailable, StoreUnsafe, StoreWentBack, Unconfirmed
from ledger.runs import read_run
from ledger.store import ScriptCall, StoreSettings, SyncStore, connections
from ledger.store.connections import Connections, Exchange
from ledger.store.wire import check_aof
from tests.support.ledger import LIMITS, SHARDS, TENANT, delivery
from tests.support.proxy import TcpProxy
from tests.support.scripted import marker, preload
from tests.support.valkey import ValkeyProcess


def admission(number: int) -> ScriptCall[Admitted]:
    """A delivery to a session of its own."""
    return admit_delivery(delivery(session=f"s{number}"), LIMITS, SHARDS)


def settings(url: str) -> StoreSettings:
    """Short waits."""
    return StoreSettings(RedisConfig(url=url, shards=SHARDS), wait_seconds=2.0)


@pytest.fixture
def store(valkey: ValkeyProcess) -> Iterator[SyncStore]:
    """An opened client."""
    store = SyncStore(settings(valkey.url))
    store.open()
    yield store
    store.close()


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Threads are switched as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def runs_of(client_url: str) -> int:
    """Runs on record."""
    store = SyncStore(settings(client_url))
    store.open()
    try:
        return len([key for key in store.command([["KEYS", "ml:*:run:*"]])[0] if not key.endswith(b":journal")])
    finally:
        store.close()


@pytest.mark.proves("C-22")
def test_threads_get_their_own_answers(store: SyncStore, eager_switching: None) -> None:
    with ThreadPoolExecutor(16) as threads:
        admitted = list(threads.map(lambda number: store.run(admission(number)), range(400)))
        sessions = list(threads.map(lambda one: _session(store, one), admitted))
    assert sessions == [f"s{number}" for number in range(400)]
    assert [one.run.session_id for one in admitted] == sessions


def _session(store: SyncStore, admitted: Admitted) -> str:
    run = store.run(read_run(0, admitted.run.run_id, TENANT)).run
    assert run is not None
    return run.session_id


@pytest.mark.proves("C-20")
def test_connections_that_the_server_closed_are_not_used(valkey: ValkeyProcess, store: SyncStore) -> None:
    store.run(admission(1))
    valkey.client().client_kill_filter(_type="normal", skipme=True)
    assert store.run(admission(2)).how == "new"


@pytest.mark.proves("C-20", "C-22")
def test_a_lost_reply_is_told_as_unconfirmed_and_a_repeat_changes_nothing(valkey: ValkeyProcess) -> None:
    preload(valkey, "admit_delivery")
    with TcpProxy(valkey.port) as proxy:
        store = SyncStore(settings(proxy.url))
        store.open()
        call = admission(1)
        proxy.lose_reply(marker("admit_delivery"))
        with pytest.raises(Unconfirmed) as caught:
            store.run(call)
        assert caught.value.extra["sent"] is True
        # The very same call: the same answer as the one that was lost.
        assert store.run(call).how == "new"
        store.close()
    assert runs_of(valkey.url) == 1


@pytest.mark.proves("C-26")
def test_a_store_that_is_gone_was_sent_nothing(valkey: ValkeyProcess, store: SyncStore) -> None:
    valkey.kill9()
    with pytest.raises(StoreUnavailable) as caught:
        store.run(admission(1))
    assert caught.value.extra["sent"] is False
    valkey.restart()
    assert store.run(admission(1)).how == "new"


@pytest.mark.proves("C-21")
def test_a_server_met_anew_with_other_settings_gets_nothing(valkey: ValkeyProcess, store: SyncStore) -> None:
    valkey.kill9()
    valkey.settings["appendfsync"] = "everysec"
    valkey.restart()
    for number in range(3):
        with pytest.raises(StoreUnsafe):
            store.run(admission(number))
    valkey.client().config_set("appendfsync", "always")
    store.run(admission(1))
    assert runs_of(valkey.url) == 1


@pytest.mark.proves("C-21", "C-26")
def test_settings_that_change_under_a_running_process_stop_it_until_they_are_right(
    valkey: ValkeyProcess, store: SyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "RECHECK_SECONDS", -1.0)
    client = valkey.client()
    client.config_set("maxmemory-policy", "allkeys-lru")
    for number in range(3):
        with pytest.raises(StoreUnsafe, match="maxmemory-policy"):
            store.run(admission(number))
    client.config_set("maxmemory-policy", "noeviction")
    assert store.run(admission(1)).how == "new"
    assert runs_of(valkey.url) == 1


@pytest.mark.proves("C-21")
def test_one_thread_looks_at_the_settings_while_the_others_wait(
    valkey: ValkeyProcess, store: SyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    verify = Connections._verify

    def counted(self: Connections, exchange: Exchange) -> Report:
        looks.append(1)
        return verify(self, exchange)

    monkeypatch.setattr(Connections, "_verify", counted)
    store._server(None)._checked_at = float("-inf")
    together = threading.Barrier(12)

    def ask(number: int) -> str:
        together.wait()
        return store.run(admission(number)).how

    with ThreadPoolExecutor(12) as threads:
        assert list(threads.map(ask, range(12))) == ["new"] * 12
    assert len(looks) == 1


@pytest.mark.proves("C-27")
def test_threads_follow_a_store_that_was_accepted(valkey: ValkeyProcess, store: SyncStore) -> None:
    store.run(admission(0))
    valkey.client().flushall()
    with pytest.raises(StoreWentBack):
        store.run(admission(1))
    accept_store(settings(valkey.url))
    with ThreadPoolExecutor(8) as threads:
        admitted = list(threads.map(lambda number: store.run(admission(number)).how, range(2, 40)))
    assert set(admitted) == {"new"}


@pytest.mark.proves("C-20")
@pytest.mark.parametrize(
    ("reply", "replicas", "confirmed"),
    [
        ([1, 0], 0, True),
        ([1, 2], 1, True),
        ([0, 0], 0, False),
        ([1, 0], 1, False),
        ([0, 1], 1, False),
        (RuntimeError("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."), 0, False),
        (b"OK", 0, False),
    ],
)
def test_only_the_configured_numbers_confirm(reply: object, replicas: int, confirmed: bool) -> None:
    assert (check_aof(reply, 1, replicas) is None) is confirmed


@pytest.mark.proves("C-20", "C-25")
def test_a_write_that_no_replica_has_is_not_told_as_done(valkey: ValkeyProcess, store: SyncStore) -> None:
    # As if the replica had gone after the last look at the settings.
    store.settings = replace(store.settings, redis=RedisConfig(url=valkey.url, shards=SHARDS, aof_replicas=1))
    store.settings = replace(store.settings, wait_seconds=0.1)
    with pytest.raises(Unconfirmed):
        store.run(admission(1))


@pytest.mark.proves("C-22")
def test_a_server_that_lost_its_scripts_gets_them_again(valkey: ValkeyProcess, store: SyncStore) -> None:
    store.run(admission(0))
    client = valkey.client()
    forget: list[Callable[[], object]] = [client.script_flush, client.function_flush]
    for forgets in forget:
        forgets()
    assert store.run(admission(1)).how == "new"
    assert runs_of(valkey.url) == 2


@pytest.mark.proves("C-22", "C-26")
def test_a_server_that_loses_its_scripts_again_gets_them_again(valkey: ValkeyProcess) -> None:
    with TcpProxy(valkey.port) as proxy, ThreadPoolExecutor(1) as pool:
        store = SyncStore(StoreSettings(RedisConfig(url=proxy.url, shards=SHARDS)))
        store.run(admission(0))
        client = valkey.client()
        client.function_flush()
        loaded = proxy.hold_reply(b"FUNCTION")
        admitted = pool.submit(store.run, admission(1))
        assert loaded.arrived.wait(10)
        client.function_flush()
        loaded.release()
        assert admitted.result(10).how == "new"
        store.close()
    assert runs_of(valkey.url) == 2
