"""C47: a store that is not what it should be is refused at start, and noticed when it changes later."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import RedisError

from tests.faults.rows import torn
from tests.support.disk import Disk
from tests.support.stack import Api, Stack, native_section, quick_section
from tests.support.valkey import VALKEY, ValkeyProcess, free_port
from tests.support.wait import wait_until

REDIS_70 = "/usr/bin/redis-server"
CONFIG = native_section() + quick_section(lease=4.0, checkpoint_wait_seconds=1.0, settlement_wait_seconds=1.0)


def _stack(tmp_path: Path, server: ValkeyProcess) -> Stack:
    return Stack(tmp_path / "stack", server.url, CONFIG)


def _refuses(api: Api, name: str) -> bool:
    reply = api.trigger(name, "d1", [("pay", {"id": name})])
    return reply.status == 503 and "Retry-After" in reply.headers


@pytest.mark.acceptance
@pytest.mark.proves("C-21")
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"appendonly": "no"}, "appendonly is no"),
        ({"maxmemory-policy": "allkeys-lru"}, "maxmemory-policy is allkeys-lru"),
        ({"maxmemory-policy": "volatile-lru"}, "maxmemory-policy is volatile-lru"),
        ({"replicaof": "127.0.0.1 1"}, "role is slave"),
        ({}, "has no WAITAOF"),
    ],
    ids=["no AOF", "evicts", "evicts volatile keys", "a replica", "Redis 7.0"],
)
def test_neither_a_worker_nor_a_front_door_starts_on_it(tmp_path: Path, settings: dict[str, str], says: str) -> None:
    """(a) to (d)."""
    server = ValkeyProcess(tmp_path / "store", settings=settings, binary=VALKEY if settings else REDIS_70)
    with server.serving(), _stack(tmp_path, server) as stack:
        for name, words in (("worker", ["worker"]), ("serve", ["serve", "--port", str(free_port())])):
            assert stack.launch(name, words).wait(30) == 1
            (line,) = [line for line in (stack.directory / f"{name}.log").read_text().splitlines() if says in line]
            assert "fix:" in line
        client: Any = server.client()
        assert client.keys("ml:*") == []


@pytest.mark.acceptance
@pytest.mark.proves("C-20", "C-21", "C-23")
def test_the_aof_is_switched_off_at_run_time(valkey: ValkeyProcess, tmp_path: Path) -> None:
    """(e) Nothing more is sent and nothing admitted; on again, all goes on by itself."""
    client: Any = valkey.client()
    with _stack(tmp_path, valkey) as stack:
        api = stack.add_front_door()
        stack.add_worker()
        assert api.trigger("c47-e", "d1", [("pay", {"id": "before"})], wait=20).body["status"] == "completed"
        client.config_set("appendonly", "no")
        wait_until(lambda: _refuses(api, "c47-off"), 15, "the front door to refuse")
        assert [effect["id"] for effect in stack.effects()] == ["before"]
        client.config_set("appendonly", "yes")
        wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"], 20, "the AOF to be written")
        wait_until(lambda: not _refuses(api, "c47-off"), 20, "the front door to admit again")
        assert api.trigger("c47-e", "d2", [("pay", {"id": "after"})], wait=30).body["status"] == "completed"


@pytest.mark.acceptance
@pytest.mark.proves("C-20", "C-23")
def test_a_disk_so_slow_that_nothing_is_confirmed(tmp_path: Path) -> None:
    """(f) The tool is never entered on an intent that was not confirmed in time."""
    disk = Disk(tmp_path / "disk")
    server = ValkeyProcess(tmp_path / "store", env=disk.env)
    with server.serving(), _stack(tmp_path, server) as stack:
        api = stack.add_front_door()
        stack.add_worker()
        api.trigger("c47-f", "d1", [("pay", {"id": "before"})], wait=20)
        calls = [("pay_slowly", {"id": f"slow-{number}", "after": 0.4}) for number in range(3)]
        run = api.trigger("c47-f", "d2", calls, on_error="continue").body
        wait_until(lambda: len(stack.effects()) == 2, 20, "the first call")
        disk.slow(2500)
        assert wait_until(lambda: _refuses(api, "c47-slow"), 30, "the front door to refuse")
        sent = [effect["id"] for effect in stack.effects()]
        assert sent in (["before", "slow-0"], ["before", "slow-0", "slow-1"])
        disk.slow(0)
        ended = api.ended(run["run_id"], timeout=60)
        effects = {effect["id"] for effect in stack.effects()}
        for number, call in enumerate(ended["calls"]):
            assert call["status"] in ("completed", "not_executed", "outcome_unknown")
            assert (call["status"] == "completed") <= (f"slow-{number}" in effects)
            assert (call["status"] == "not_executed") <= (f"slow-{number}" not in effects)


@pytest.mark.proves("C-10")
def test_an_aof_that_lost_its_last_thirty_bytes(tmp_path: Path) -> None:
    """(h) The last write is there in full, with all its indexes, or not at all."""
    tally = torn.cut_at_every_byte(tmp_path, seed=0, step=10_000, before_the_end=30)
    assert tally.injected >= 6
    assert tally.violations == []


@pytest.mark.acceptance
@pytest.mark.proves("C-26")
def test_a_server_that_is_busy_in_a_script(valkey: ValkeyProcess, tmp_path: Path) -> None:
    client: Any = valkey.client(socket_timeout=30)
    client.config_set("busy-reply-threshold", 50)
    with _stack(tmp_path, valkey) as stack:
        api = stack.add_front_door()
        stack.add_worker()
        api.trigger("c47-busy", "d1", [("pay", {"id": "before"})], wait=20)

        def endless() -> None:
            with pytest.raises(RedisError, match="killed"):
                client.eval("while true do end", 0)

        busy = threading.Thread(target=endless)
        busy.start()
        wait_until(lambda: _refuses(api, "c47-waits"), 15, "the front door to refuse")
        assert [effect["id"] for effect in stack.effects()] == ["before"]
        valkey.client().script_kill()
        busy.join(20)
        wait_until(lambda: not _refuses(api, "c47-waits"), 20, "the front door to admit again")
        client.script_flush()
        client.function_flush()
        assert api.trigger("c47-busy", "d2", [("pay", {"id": "after"})], wait=30).body["status"] == "completed"
        assert sorted(effect["id"] for effect in stack.effects()) == ["after", "before", "c47-waits"]
