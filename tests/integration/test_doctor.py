"""`doctor` against real stores: the right verdict and the right fix in each line."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.cli import checks
from ledger.config import Config, RedisConfig
from ledger.durability import Level, plain_client
from ledger.embedded import EmbeddedStore
from ledger.tokens import TOKENS_FILE
from tests.support.cli import Ran, run
from tests.support.sentinel import sentinel_of
from tests.support.valkey import ValkeyProcess, free_port
from tests.support.wait import wait_until

REDIS_70 = "/usr/bin/redis-server"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty directory to stand in, and no checks of other packages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checks, "entry_points", lambda **_: [])


@pytest.fixture
def folder() -> Iterator[Path]:
    """A data directory with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="ml-test-") as name:
        yield Path(name)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., ValkeyProcess]]:
    """A server with other settings or of another kind."""
    servers: list[ValkeyProcess] = []

    def starter(binary: str | None = None, **settings: str) -> ValkeyProcess:
        named = {name.replace("_", "-"): value for name, value in settings.items()}
        more: dict[str, Any] = {"binary": binary} if binary else {}
        server = ValkeyProcess(tmp_path / f"server{len(servers)}", settings=named, **more)
        servers.append(server.start())
        return server

    yield starter
    for server in servers:
        server.stop()


def lines(ran: Ran) -> dict[str, str]:
    """The report's lines by the check's name."""
    names = ("confirmed write", "embedded store")
    found = {}
    for line in ran.out.splitlines():
        rest = line[5:]
        name = next((name for name in names if rest.startswith(name)), rest.split()[0])
        found[name] = f"{line[:4].strip()}: {rest[len(name) :].strip()}"
    return found


def not_ok(ran: Ran) -> dict[str, str]:
    """The lines that are not ok."""
    return {name: line for name, line in lines(ran).items() if not line.startswith("ok")}


@pytest.mark.proves("C-21", "C-84")
def test_the_running_embedded_store_is_fine(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedStore(folder):
        ran = run(capsys, "doctor", "--data", folder)
    assert (ran.code, ran.err) == (0, "")
    found = lines(ran)
    assert found["durability"] == "ok: verified"
    assert found["appendfsync"] == "ok: appendfsync is always"
    assert found["maxmemory-policy"] == "ok: maxmemory-policy is noeviction"
    assert found["aof-use-rdb-preamble"] == "ok: aof-use-rdb-preamble is no"
    assert found["role"] == "ok: role is master"
    assert found["version"].endswith("with WAITAOF")
    assert found["confirmed write"].startswith("ok: p50 ")
    assert set(not_ok(ran)) == {"tokens", "rq"}
    assert "embedded store" not in found


@pytest.mark.proves("C-21")
def test_everysec_is_bad_and_the_fix_is_named(
    start: Callable[..., ValkeyProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run(capsys, "doctor", "--redis-url", start(appendfsync="everysec").url)
    assert ran.code == 1
    found = not_ok(ran)
    assert found.pop("durability") == "bad: unsafe"
    assert found.pop("appendfsync") == (
        "bad: appendfsync is everysec, not always; "
        "fix: `appendfsync always` in the server's configuration (now: CONFIG SET appendfsync always)"
    )
    # WAITAOF would answer there before the fsync: a latency would be a lie.
    assert found.pop("confirmed write") == "warn: not measured while a setting above is bad"
    assert set(found) == {"tokens", "rq"}


@pytest.mark.proves("C-21")
def test_an_aof_that_is_off_is_bad_and_the_fix_is_named(
    start: Callable[..., ValkeyProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    server = start(appendonly="no", aof_use_rdb_preamble="yes", maxmemory_policy="allkeys-lru")
    ran = run(capsys, "doctor", "--redis-url", server.url)
    assert ran.code == 1
    found = not_ok(ran)
    assert found["appendonly"].startswith("bad: appendonly is no, not yes; fix: `appendonly yes`")
    assert found["maxmemory-policy"].startswith("bad: maxmemory-policy is allkeys-lru: a full server would drop")
    assert found["aof-use-rdb-preamble"].startswith("warn: aof-use-rdb-preamble is yes")
    assert server.client().keys("*") == []


@pytest.mark.proves("C-21")
def test_redis_70_is_bad_in_verified_mode_and_fine_in_the_mode_that_the_fix_names(
    start: Callable[..., ValkeyProcess],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = start(binary=REDIS_70)
    ran = run(capsys, "doctor", "--redis-url", server.url)
    assert ran.code == 1
    version = not_ok(ran).pop("version")
    assert version.startswith("bad: Redis 7.0.")
    assert version.endswith('or set redis.durability = "always"')
    assert lines(ran)["appendfsync"] == "ok: appendfsync is always"
    monkeypatch.setenv("MUTATION_LEDGER__REDIS__DURABILITY", "always")
    again = run(capsys, "doctor", "--redis-url", server.url)
    assert again.code == 0
    assert "without WAITAOF (not needed in this mode)" in lines(again)["version"]
    assert lines(again)["confirmed write"].startswith("ok: p50 ")


def test_without_any_store_a_scratch_one_is_tried_and_removed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "doctor", "--data", folder)
    assert ran.code == 0
    assert lines(ran)["embedded store"] == (f"ok: none runs under {folder}; a scratch one was started for these checks")
    assert lines(ran)["confirmed write"].startswith("ok: p50 ")
    assert "rq" not in lines(ran)
    assert list(folder.iterdir()) == []


def test_a_store_that_is_gone_is_one_line(start: Callable[..., ValkeyProcess], capsys: Any) -> None:
    server = start()
    server.kill9()
    ran = run(capsys, "doctor", "--redis-url", server.url)
    assert ran.code == 1
    assert not_ok(ran)["store"].startswith("bad: the store cannot be reached: ")


def test_the_probe_is_deleted_and_touches_nothing_else(valkey: ValkeyProcess, capsys: Any) -> None:
    client = valkey.client()
    client.set("other", "kept")
    before = client.info("stats")["total_commands_processed"]
    assert run(capsys, "doctor", "--redis-url", valkey.url).code == 0
    assert client.keys("*") == [b"other"]
    assert client.info("commandstats")["cmdstat_waitaof"]["calls"] >= checks.PROBES
    assert client.info("stats")["total_commands_processed"] > before


@pytest.mark.proves("C-20")
def test_a_write_that_is_not_confirmed_is_bad(valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CONFIRM_MS", 100)
    settings = RedisConfig(aof_replicas=1)
    with plain_client(valkey.url) as client:
        finding = checks.write_latency(client, settings)
    assert finding.verdict is Level.BAD
    assert finding.detail == "WAITAOF confirmed 1 local and 0 replicas within 100 ms, not 1 local and 1 replicas"


def test_a_refused_write_is_bad(valkey: ValkeyProcess) -> None:
    client = valkey.client()
    client.config_set("maxmemory", "1")
    finding = checks.write_latency(client, RedisConfig())
    assert finding.verdict is Level.BAD
    assert finding.detail.startswith("a write failed: ")
    assert "OOM" in finding.detail or "maxmemory" in finding.detail


def test_job_workers_are_counted_by_their_keys(
    valkey: ValkeyProcess, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RQ_KEY_PREFIX", raising=False)
    client = valkey.client()
    assert not_ok(run(capsys, "doctor", "--redis-url", valkey.url))["rq"].startswith("warn: no worker is registered")
    client.sadd("{rq}:workers", "{rq}:worker:a", "{rq}:worker:dead")
    client.hset("{rq}:worker:a", "birth", "now")
    assert lines(run(capsys, "doctor", "--redis-url", valkey.url))["rq"] == "ok: 1 worker registered"
    monkeypatch.setenv("RQ_KEY_PREFIX", "other")
    assert "no worker" in lines(run(capsys, "doctor", "--redis-url", valkey.url))["rq"]


def test_a_cluster_is_checked_node_by_node(start: Callable[..., ValkeyProcess], capsys: Any) -> None:
    # By default the cluster bus takes port + 10000, which may be no port at all.
    server = start(cluster_enabled="yes", cluster_port=str(free_port()))
    client: Any = server.client()
    client.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    wait_until(lambda: client.cluster("INFO")["cluster_state"] == "ok", 20, "the cluster")
    ran = run(capsys, "doctor", "--redis-url", server.url.replace("redis://", "redis+cluster://"))
    assert ran.code == 0
    assert lines(ran)["confirmed write"].startswith("ok: p50 ")


def test_sentinel_is_asked_for_the_primary(valkey: ValkeyProcess, tmp_path: Path, capsys: Any) -> None:
    with sentinel_of(valkey, tmp_path) as url:
        wait_until(lambda: run(capsys, "doctor", "--redis-url", f"{url}/main").code == 0, 20, "Sentinel")
        ran = run(capsys, "doctor", "--redis-url", f"{url}/absent")
        assert not_ok(ran)["store"].startswith(
            "bad: the store cannot be reached: no Sentinel names a primary for 'absent'"
        )
        ran = run(capsys, "doctor", "--redis-url", url)
        assert "a Sentinel URL ends with the service's name" in not_ok(ran)["store"]


def test_json_has_the_same_checks(valkey: ValkeyProcess, capsys: Any) -> None:
    client = valkey.client()
    client.config_set("appendfsync", "no")
    ran = run(capsys, "doctor", "--json", "--redis-url", valkey.url)
    assert ran.code == 1
    assert ran.json["ok"] is False
    (finding,) = (check for check in ran.json["checks"] if check["name"] == "appendfsync")
    assert finding["verdict"] == "bad"
    assert "CONFIG SET appendfsync always" in finding["fix"]


def test_a_bad_configuration_is_a_line_too(tmp_path: Path, capsys: Any) -> None:
    Path("mutation-ledger.toml").write_text("[servce]\n")
    ran = run(capsys, "doctor")
    assert ran.code == 1
    assert list(lines(ran)) == ["config"]
    assert ran.out == (
        "bad  config                     mutation-ledger.toml: unknown setting servce; "
        "did you mean service?; fix: correct that setting\n"
    )


def test_tokens_are_counted_and_a_damaged_file_is_bad(folder: Path, valkey: ValkeyProcess, capsys: Any) -> None:
    entry = f'[[tokens]]\nname = "a"\nsha256 = "{"a" * 64}"\nroles = ["read"]\n'
    (folder / TOKENS_FILE).write_text(entry)
    arguments = ("doctor", "--data", folder, "--redis-url", valkey.url)
    assert lines(run(capsys, *arguments))["tokens"] == "ok: 1 known"
    (folder / TOKENS_FILE).write_text("[[tokens]")
    assert lines(run(capsys, *arguments))["tokens"].startswith("bad: ")


class Check:
    """Stands for an entry point."""

    def __init__(self, name: str, answer: Callable[[Config], Iterable[tuple[str, bool, str]]]) -> None:
        self.name = name
        self._answer = answer

    def load(self) -> Callable[[Config], Iterable[tuple[str, bool, str]]]:
        """The callable behind it."""
        return self._answer


def test_checks_of_other_packages_count_and_cannot_hide_each_other(
    valkey: ValkeyProcess, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Config) -> Iterable[tuple[str, bool, str]]:
        raise RuntimeError("secret text")

    fine = Check("fine", lambda config: [("mcp-a", True, f"{len(config.tokens)} tools")])
    lame = Check("lame", lambda config: [("mcp-b", False, "does not answer")])
    monkeypatch.setattr(checks, "entry_points", lambda **_: [fine])
    assert run(capsys, "doctor", "--redis-url", valkey.url).code == 0
    monkeypatch.setattr(checks, "entry_points", lambda **_: [Check("broken", broken), lame, fine])
    ran = run(capsys, "doctor", "--redis-url", valkey.url)
    assert ran.code == 1
    found = lines(ran)
    assert found["mcp-a"] == "ok: 0 tools"
    assert found["mcp-b"] == "bad: does not answer"
    assert found["broken"] == "bad: the check itself failed: RuntimeError; fix: report it"
