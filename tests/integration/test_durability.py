"""Durability verdicts on real servers: Valkey in good and bad settings, and Debian's Redis 7.0."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.config import Durability, RedisConfig
from ledger.durability import Level, Verdict, plain_client, read_facts, verify
from ledger.errors import StoreUnavailable, StoreUnsafe
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

REDIS_70 = "/usr/bin/redis-server"
VERIFIED = RedisConfig()


@pytest.fixture
def redis_70(tmp_path: Path) -> Iterator[ValkeyProcess]:
    """Debian 12's Redis, which has no WAITAOF, with the durable settings."""
    server = ValkeyProcess(tmp_path / "redis", binary=REDIS_70)
    server.start()
    yield server
    server.stop()


@pytest.mark.proves("C-20", "C-21")
def test_a_durable_valkey_is_verified(valkey: ValkeyProcess) -> None:
    report = verify(valkey.client(), VERIFIED)
    assert report.verdict is Verdict.VERIFIED
    assert {finding.verdict for finding in report.findings} == {Level.OK}


@pytest.mark.proves("C-21")
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("appendonly", "no"),
        ("appendfsync", "everysec"),
        ("no-appendfsync-on-rewrite", "yes"),
        ("maxmemory-policy", "volatile-lru"),
    ],
)
def test_a_setting_changed_at_run_time_is_seen_and_its_fix_works(
    valkey: ValkeyProcess, setting: str, value: str
) -> None:
    client = valkey.client()
    good = str(client.config_get(setting)[setting])
    client.config_set(setting, value)
    with pytest.raises(StoreUnsafe, match=rf"{setting} is {value}.*CONFIG SET {setting} {good}"):
        verify(client, VERIFIED)
    client.config_set(setting, good)
    assert verify(client, VERIFIED).verdict is Verdict.VERIFIED
    # Switching the AOF on writes it anew, and the server refuses to end before that.
    wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"], 20, "the first AOF")


@pytest.mark.proves("C-21")
def test_redis_70_needs_the_mode_for_old_servers(redis_70: ValkeyProcess) -> None:
    with pytest.raises(StoreUnsafe, match=r'Redis 7\.0\.\d+ has no WAITAOF; fix: .*redis\.durability = "always"$'):
        verify(redis_70.client(), VERIFIED)
    always = RedisConfig(durability=Durability.ALWAYS)
    assert verify(redis_70.client(), always).verdict is Verdict.VERIFIED
    redis_70.client().config_set("appendfsync", "everysec")
    with pytest.raises(StoreUnsafe, match=r"appendfsync is everysec"):
        verify(redis_70.client(), always)


@pytest.mark.proves("C-21", "C-27")
def test_replicas_are_counted_and_a_replica_is_refused(valkey: ValkeyProcess, tmp_path: Path) -> None:
    replica = ValkeyProcess(tmp_path / "replica")
    replica.start()
    valkey.client().config_set("repl-diskless-sync-delay", 0)
    try:
        replica.client().replicaof("127.0.0.1", valkey.port)
        info = valkey.client()
        wait_until(lambda: replica_state(info) == "online", 20, "the replica")
        with pytest.raises(StoreUnsafe, match=r"role is slave"):
            verify(replica.client(), VERIFIED)
        (finding,) = (f for f in verify(info, VERIFIED).findings if f.name == "aof_replicas")
        assert finding.verdict is Level.WARN
        assert verify(info, RedisConfig(aof_replicas=1)).verdict is Verdict.VERIFIED
        with pytest.raises(StoreUnavailable, match=r"aof_replicas = 2, 1 connected"):
            verify(info, RedisConfig(aof_replicas=2))
    finally:
        replica.stop()


def replica_state(client: Any) -> str | None:
    """How the server sees its first replica; None if there is none."""
    state: str | None = client.info("replication").get("slave0", {}).get("state")
    return state


@pytest.mark.proves("C-21")
def test_a_service_that_forbids_config_can_be_attested(valkey: ValkeyProcess) -> None:
    client = valkey.client()
    client.acl_setuser("managed", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-config"])
    managed = valkey.client(username="managed", password="")
    with pytest.raises(StoreUnsafe, match=r'CONFIG GET is forbidden.*redis\.durability = "external"'):
        verify(managed, VERIFIED)
    external = RedisConfig(durability=Durability.EXTERNAL)
    assert verify(managed, external).verdict is Verdict.ATTESTED
    client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(StoreUnsafe, match=r"maxmemory-policy is allkeys-lru"):
        verify(managed, external)


@pytest.mark.proves("C-21")
def test_a_restarted_server_has_another_run_id(valkey: ValkeyProcess) -> None:
    before = read_facts(valkey.client()).run_id
    assert before == read_facts(valkey.client()).run_id
    valkey.restart()
    assert read_facts(valkey.client()).run_id not in ("", before)


def test_a_loading_server_is_unavailable(tmp_path: Path) -> None:
    server = ValkeyProcess(tmp_path / "slow")
    server.start()
    with server.client().pipeline(transaction=False) as pipe:
        for n in range(20_000):
            pipe.set(f"key:{n}", n)
        pipe.execute()
    server.stop()
    # The server looks at its connections every 1,024 commands, so the load must take a while.
    server.settings["key-load-delay"] = "20"
    server.launch()
    try:
        line = wait_until(lambda: unavailable(server), 20, "the server to listen")
        assert line == "the store is loading its data; wait until it has loaded"
    finally:
        server.kill9()
        server.stop()


def unavailable(server: ValkeyProcess) -> str:
    """Why the store is unavailable; empty while nobody listens yet."""
    with plain_client(server.url) as client, pytest.raises(StoreUnavailable) as caught:
        read_facts(client)
    line = str(caught.value)
    return "" if "refused" in line else line


def test_a_server_that_is_gone_is_unavailable_in_one_line(valkey: ValkeyProcess) -> None:
    valkey.kill9()
    with pytest.raises(StoreUnavailable, match=r"^the store cannot be reached: [^\n]*refused[^\n]*$"):
        verify(valkey.client(), VERIFIED)
