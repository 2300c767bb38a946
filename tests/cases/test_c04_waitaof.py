"""C04: a WAITAOF follows every write on the write's own connection, outside MULTI, and nobody counts on another."""

from __future__ import annotations

import re
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledger.admission import Admitted, admit_delivery
from ledger.config import RedisConfig
from ledger.errors import StoreUnsafe, Unconfirmed
from ledger.runs import read_run
from ledger.store import ScriptCall, StoreSettings, SyncStore
from tests.support.checker import check, read_ledger
from tests.support.ledger import LIMITS, SHARDS, TENANT, delivery
from tests.support.proxy import TcpProxy
from tests.support.scripted import preload
from tests.support.stack import Stack, native_section, quick_section
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

LINE = re.compile(rb'^\+\d+\.\d+ \[\d+ (\S+)\] "([^"]*)"')
WRITES = ("EVALSHA", "FCALL")


def admission(number: int) -> ScriptCall[Admitted]:
    """A delivery to a session of its own."""
    return admit_delivery(delivery(session=f"s{number}"), LIMITS, SHARDS)


@contextmanager
def monitored(valkey: ValkeyProcess) -> Iterator[dict[str, list[str]]]:
    """Command names by connection, as the server ran them inside the block; what scripts call is left out."""
    seen: dict[str, list[str]] = defaultdict(list)
    begun = threading.Event()
    link = socket.create_connection(("127.0.0.1", valkey.port))
    link.sendall(b"MONITOR\r\n")

    def follow() -> None:
        with link.makefile("rb") as lines:
            for line in lines:
                begun.set()
                match = LINE.match(line)
                if match is not None and match.group(1) != b"lua":
                    seen[match.group(1).decode()].append(match.group(2).decode().upper())

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    assert begun.wait(5)
    try:
        yield seen
    finally:
        valkey.client().ping()
        wait_until(lambda: any("PING" in names for names in seen.values()), 5, "the monitor to catch up")
        link.shutdown(socket.SHUT_RDWR)
        reader.join(10)
        link.close()


def check_order(seen: dict[str, list[str]]) -> int:
    """How many scripts ran; on each connection a WAITAOF comes after them, before any wait for news, never in MULTI."""
    scripts = 0
    for names in seen.values():
        mine = [name for name in names if name in (*WRITES, "WAITAOF", "MULTI")]
        scripts += sum(name in WRITES for name in mine)
        if any(name in WRITES for name in mine):
            assert "MULTI" not in mine
            assert mine[-1] == "WAITAOF", mine[-5:]
    return scripts


@pytest.mark.proves("C-20", "C-21")
def test_everysec_is_not_even_begun_with(valkey: ValkeyProcess) -> None:
    valkey.client().config_set("appendfsync", "everysec")
    store = SyncStore(StoreSettings(RedisConfig(url=valkey.url, shards=SHARDS)))
    with pytest.raises(StoreUnsafe, match="appendfsync is everysec"):
        store.run(admission(1))
    store.close()
    assert valkey.client().keys("ml:*") == []


@pytest.mark.proves("C-20", "C-22")
def test_a_connection_that_ends_before_its_waitaof_confirms_nothing(valkey: ValkeyProcess) -> None:
    """(a) Whether the write itself arrived or not: the answer is "unconfirmed", and the repeat is confirmed anew."""
    preload(valkey, "admit_delivery")
    with TcpProxy(valkey.port) as proxy:
        store = SyncStore(StoreSettings(RedisConfig(url=proxy.url, shards=SHARDS)))
        store.open()
        proxy.cut_request(b"*4\r\n$7\r\nWAITAOF")
        with pytest.raises(Unconfirmed):
            store.run(admission(1))
        with monitored(valkey) as seen:
            again = store.run(admission(1))
        assert check_order(seen) == 1
        store.close()
    valkey.kill9()
    valkey.start()
    assert survives(valkey, again)


@pytest.mark.proves("C-20")
def test_threads_that_share_a_client_each_wait_for_their_own(valkey: ValkeyProcess) -> None:
    """(b) 200 at once; (c) no MULTI anywhere; after kill -9 everything that was answered is there."""
    store = SyncStore(StoreSettings(RedisConfig(url=valkey.url, shards=SHARDS)))
    store.open()
    with monitored(valkey) as seen, ThreadPoolExecutor(16) as threads:
        admitted = list(threads.map(lambda number: store.run(admission(number)), range(200)))
    # A server that did not know the script yet was asked once more.
    assert check_order(seen) >= 200
    for names in seen.values():
        mine = [name for name in names if name in (*WRITES, "WAITAOF")]
        assert set(mine[::2]) <= set(WRITES)
        assert set(mine[1::2]) <= {"WAITAOF"}
    valkey.kill9()
    valkey.start()
    store.close()
    assert all(survives(valkey, one) for one in admitted)


@pytest.mark.acceptance
@pytest.mark.proves("C-20")
def test_no_tool_is_entered_on_an_intent_that_a_kill_could_take(valkey: ValkeyProcess, tmp_path: Path) -> None:
    """The server dies within 100 ms of a tool's entry; the intent of every entered tool is found after the restart."""
    with Stack(tmp_path / "stack", valkey.url, native_section() + quick_section(lease=2.0)) as stack:
        api = stack.add_front_door()
        stack.add_worker()
        sessions = [f"c04-{number}" for number in range(6)]
        with monitored(valkey) as seen:
            for name in sessions:
                calls = [("pay_slowly", {"id": f"{name}-{call}", "after": 0.02}) for call in range(8)]
                assert api.trigger(name, "d", calls, on_error="continue").status == 202
            wait_until(lambda: len(stack.effects()) >= 10, 20, "tools to be entered")
        for _ in range(3):
            wanted = len(stack.effects()) + 1
            wait_until(lambda wanted=wanted: len(stack.effects()) >= min(wanted, 40), 20, "a tool to be entered")  # type: ignore[misc]  # bound
            valkey.kill9()
            valkey.start()
            entries = read_ledger(valkey, sessions).entries
            assert {effect["mutation_id"] for effect in stack.effects()} <= entries.keys()
        for name in sessions:
            run = api.trigger(name, "after", [("pay", {"id": f"{name}-after"})], wait=30).body
            assert run["status"] == "completed"
        check(stack.effects(), read_ledger(valkey, sessions))
    workers = {addr: names for addr, names in seen.items() if any(name in WRITES for name in names)}
    assert check_order(workers) > 6


def survives(valkey: ValkeyProcess, admitted: Admitted) -> bool:
    """Whether the run is on record now."""
    store = SyncStore(StoreSettings(RedisConfig(url=valkey.url, shards=SHARDS)))
    try:
        return store.run(read_run(0, admitted.run.run_id, TENANT)).run is not None
    finally:
        store.close()
