"""`up` as a process: starts everything, keeps it running, stops it in order, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from ledger.durability import plain_client
from ledger.embedded import EmbeddedStore, find_url
from ledger.embedded.directory import PID_FILE
from ledger.errors import LedgerError
from ledger.supervise.up import StoreChild, wait_for_port
from ledger.tokens import TOKENS_FILE
from tests.support.fake_services import install
from tests.support.valkey import ValkeyProcess, free_port
from tests.support.wait import wait_until


class Up:
    """One `mutation-ledger up` with the stand-ins for front door and workers."""

    def __init__(self, folder: Path, *arguments: str, **env: str) -> None:
        self.data = folder / "data"
        self.port = free_port()
        self._log = folder / "services.log"
        self._err = folder / "err.txt"
        fakes = folder / "fakes"
        environment = install(fakes, self._log, **env) if not fakes.exists() else {**self._old(fakes), **env}
        command = [sys.executable, "-m", "ledger.cli", "up", "--port", str(self.port), "--data", str(self.data)]
        with self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*command, *arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                cwd=folder,
                process_group=0,
            )

    def _old(self, fakes: Path) -> dict[str, str]:
        root = Path(__file__).parents[2]
        return {**os.environ, "PYTHONPATH": f"{fakes}:{root}", "FAKE_LOG": str(self._log)}

    def ready(self) -> list[str]:
        """What it printed up to the console's address."""
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line.rstrip())
            if line.startswith(("console:", '{"console"')):
                wait_until(lambda: len(self.services("start")) >= 1, 20, "services")
                return lines
        raise AssertionError(f"up ended: {self.err}")

    @property
    def err(self) -> str:
        """Its lines for people."""
        return self._err.read_text()

    @property
    def log(self) -> list[str]:
        """What happened to the stand-ins, in order."""
        return self._log.read_text().splitlines() if self._log.exists() else []

    def services(self, what: str) -> list[str]:
        """The stand-ins' log lines about `start` or `stop`."""
        return [line for line in self.log if f" {what} " in line]

    def pids(self, name: str) -> list[int]:
        """The process ids with which `name` was started, in order."""
        return [int(line.split()[2]) for line in self.log if line.startswith(f"{name} start")]

    def started(self, name: str, times: int) -> list[int]:
        """Wait until `name` was started so many times; the process ids."""
        wait_until(lambda: len(self.pids(name)) >= times, 20, f"{times} starts of {name}")
        return self.pids(name)

    def store_pid(self) -> int:
        """The embedded server's process id."""
        return int((self.data / PID_FILE).read_text())

    def end(self, *numbers: signal.Signals) -> int:
        """Send the signals and wait for the end; the exit code."""
        for number in numbers:
            self.process.send_signal(number)
        return self.process.wait(30)


@pytest.fixture
def up() -> Iterator[Callable[..., Up]]:
    """Starts `up` in one short scratch directory; whatever still runs at the end is killed."""
    started: list[Up] = []
    with tempfile.TemporaryDirectory(prefix="ml-test-") as name:

        def start(*arguments: str, **env: str) -> Up:
            started.append(Up(Path(name), *arguments, **env))
            return started[-1]

        yield start
        for one in started:
            one.process.kill()
            one.process.wait()
            if one.process.stdout is not None:
                one.process.stdout.close()


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_it_starts_everything_and_stops_front_door_then_workers_then_store(up: Callable[..., Up]) -> None:
    one = up()
    printed = one.ready()
    assert printed[-1] == f"console: http://127.0.0.1:{one.port}/  (data in {one.data}; Ctrl-C stops)"
    one.started("worker", 2)
    pids = [*one.pids("worker"), *one.pids("serve"), one.store_pid()]
    assert one.end(signal.SIGTERM) == 0
    assert [line.split()[0] for line in one.services("stop")] == ["serve", "worker", "worker"]
    assert not any(alive(pid) for pid in pids)
    assert one.err == "stopping; a second signal stops at once\n"
    # The workers' last writes reached a store that was still there, and are on disk.
    with EmbeddedStore(one.data) as store, plain_client(store.url) as client:
        assert client.mget("started", "stopped") == [b"2", b"2"]


def test_ctrl_c_in_a_terminal_reaches_up_only(up: Callable[..., Up]) -> None:
    one = up("--workers", "1")
    one.ready()
    one.started("worker", 1)
    # A terminal sends SIGINT to the whole foreground group.
    os.killpg(one.process.pid, signal.SIGINT)
    assert one.process.wait(30) == 0
    assert [line.split()[0] for line in one.services("stop")] == ["serve", "worker"]
    assert "starting it again" not in one.err


def test_a_first_start_prints_tokens_once_and_keeps_digests_only(up: Callable[..., Up]) -> None:
    one = up("--workers", "0")
    tokens = [line.split()[1] for line in one.ready() if " mlt_" in line]
    assert len(tokens) == 3
    assert one.end(signal.SIGINT) == 0
    kept = (one.data / TOKENS_FILE).read_text()
    assert kept.count("sha256") == 3
    assert not any(token in kept for token in tokens)
    again = up("--workers", "0")
    assert not any("mlt_" in line for line in again.ready())


def test_json_for_programs(up: Callable[..., Up]) -> None:
    one = up("--workers", "0", "--json")
    first, last = one.ready()
    assert re.fullmatch(r'\{"tokens":\{"agent":"mlt_.*","approver":"mlt_.*","admin":"mlt_.*"\}\}', first)
    assert last == f'{{"console":"http://127.0.0.1:{one.port}/","data":"{one.data}"}}'


def test_a_killed_worker_and_front_door_are_started_again_and_it_says_so(up: Callable[..., Up]) -> None:
    one = up("--workers", "1")
    one.ready()
    for name, called in (("worker", "worker 1"), ("serve", "front door")):
        one.started(name, 1)
        os.kill(one.pids(name)[0], signal.SIGKILL)
        one.started(name, 2)
        assert f"{called} ended (SIGKILL); starting it again in 0.2 s\n" in one.err


@pytest.mark.proves("C-26")
def test_a_killed_store_comes_back_on_the_same_address_with_its_data(up: Callable[..., Up]) -> None:
    one = up("--workers", "1")
    one.ready()
    one.started("worker", 1)
    url = str(find_url(one.data))
    with plain_client(url) as client:
        client.set("key", "value")
        client.execute_command("WAITAOF", 1, 0, 5000)
    pid = one.store_pid()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: one.store_pid() != pid, 20, "another server")
    wait_until(lambda: answers(url), 20, "the store to answer")
    with plain_client(url) as client:
        assert client.get("key") == b"value"
    assert "store ended (SIGKILL); starting it again in 0.2 s" in one.err
    assert len(one.pids("worker")) == 1


def answers(url: str) -> bool:
    """Whether the store serves."""
    with plain_client(url) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False


def test_nothing_survives_a_killed_up_and_the_next_one_goes_on(up: Callable[..., Up]) -> None:
    one = up()
    one.ready()
    one.started("worker", 2)
    pids = [*one.pids("worker"), *one.pids("serve"), one.store_pid()]
    one.end(signal.SIGKILL)
    wait_until(lambda: not any(alive(pid) for pid in pids), 10, "all children to end")
    two = up("--workers", "0")
    two.ready()
    with plain_client(str(find_url(two.data))) as client:
        assert client.get("started") == b"2"
    assert two.end(signal.SIGTERM) == 0


def test_a_second_signal_stops_at_once(up: Callable[..., Up]) -> None:
    one = up("--workers", "1", FAKE_STUBBORN="1")
    one.ready()
    one.started("worker", 1)
    one.process.send_signal(signal.SIGTERM)
    wait_until(lambda: one.services("stop"), 20, "the front door to stop")
    # The worker ignores SIGTERM and would be given 70 s.
    pids = [*one.pids("worker"), one.store_pid()]
    assert one.end(signal.SIGINT) == 0
    assert not any(alive(pid) for pid in pids)


def test_two_ups_on_one_directory_are_refused_in_one_line(up: Callable[..., Up]) -> None:
    one = up("--workers", "0")
    one.ready()
    two = up("--workers", "0")
    assert two.process.wait(30) == 1
    assert two.err == f"error: {one.data} is in use by process {one.process.pid}; stop it, or give another --data\n"
    assert one.end(signal.SIGTERM) == 0


def test_a_given_store_is_used_and_left_running(up: Callable[..., Up], valkey: ValkeyProcess) -> None:
    one = up("--workers", "1", "--redis-url", valkey.url)
    one.ready()
    # A URL may hold a password, and everybody on a machine can read command lines.
    for pid in (*one.started("worker", 1), *one.started("serve", 1)):
        assert str(valkey.port) not in Path(f"/proc/{pid}/cmdline").read_text()
    assert not (one.data / "store").exists()
    assert one.end(signal.SIGTERM) == 0
    assert valkey.client().mget("started", "stopped") == [b"1", b"1"]


@pytest.mark.proves("C-21")
def test_an_unsafe_store_is_refused_before_anything_starts(up: Callable[..., Up], valkey: ValkeyProcess) -> None:
    valkey.client().config_set("appendfsync", "everysec")
    one = up("--redis-url", valkey.url)
    assert one.process.wait(30) == 1
    assert one.err.startswith("error: the store cannot keep the durability promise: appendfsync is everysec")
    assert one.err.count("\n") == 1
    assert one.log == []
    allowed = up("--workers", "0", "--redis-url", valkey.url, MUTATION_LEDGER__REDIS__ALLOW_EPHEMERAL="true")
    allowed.ready()


def test_a_port_that_is_still_taken_is_waited_for(up: Callable[..., Up]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        one = up("--workers", "0", "--port", str(port))
        wait_until(lambda: f"port {port} is in use; waiting up to 10 s for it\n" in one.err, 20, "its complaint")
        assert not (one.data / "store").exists()
    assert one.ready()[-1].startswith(f"console: http://127.0.0.1:{port}/")


def test_a_port_that_stays_taken_is_told() -> None:
    said: list[str] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LedgerError, match=rf"^port {port} has been in use for 0\.3 s; free it or give another"):
            wait_for_port(port, said.append, seconds=0.3)
    assert len(said) == 1
    wait_for_port(port, said.append, seconds=0.3)
    assert len(said) == 1


def test_a_store_that_is_silent_for_long_counts_as_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.supervise.up.HEALTH_SECONDS", 0.1)
    monkeypatch.setattr("ledger.supervise.up.HUNG_SECONDS", 0.5)
    with tempfile.TemporaryDirectory(prefix="ml-test-") as name, EmbeddedStore(Path(name)) as store:
        child = StoreChild(store)
        assert not child.hung()
        assert store.pid is not None
        os.kill(store.pid, signal.SIGSTOP)
        wait_until(child.hung, 10, "the silence to be noticed")
        child.kill()
        assert child.exit_code() == -signal.SIGKILL
        child.launch()
        wait_until(lambda: store.health() == "ok", 10, "the new server")
        assert not child.hung()
