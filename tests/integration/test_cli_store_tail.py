"""`tail` on a real Valkey: cursor files, gaps, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.cli.tail import interrupts
from ledger.erasure import sweep_retention
from ledger.supervise.child import command_line
from tests.support.cli import Ran, run
from tests.support.publishing import Publisher
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

pytestmark = pytest.mark.proves("C-111")
Cli = Callable[..., Ran]
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty directory to stand in and no settings in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("MUTATION_LEDGER")]:
        monkeypatch.delenv(name)


@pytest.fixture
def publisher(store_url: str) -> Iterator[Publisher]:
    """A front door and worker on the emptied store."""
    made = Publisher(store_url)
    yield made
    made.close()


@pytest.fixture
def tail(store_url: str, capsys: pytest.CaptureFixture[str]) -> Cli:
    """`tail --once` on the session's store."""
    return lambda *arguments: run(capsys, "tail", "--redis-url", store_url, "--once", *arguments)


def lines(ran: Ran) -> list[dict[str, Any]]:
    assert (ran.code, ran.err) == (0, "")
    return [json.loads(line) for line in ran.out.splitlines()]


def test_a_first_tail_starts_now_and_the_next_goes_on(tail: Cli, publisher: Publisher, tmp_path: Path) -> None:
    publisher.publish(1)
    assert lines(tail()) == []
    session = publisher.publish(2, calls=2)
    first, second = lines(tail())
    assert (first["session_id"], first["shard"], first["tenant"]) == (session, 2, "acme")
    assert [first["mutation_revision"], second["mutation_revision"]] == [2, 4]
    assert first["record"]["schema"] == "mutation_outcome/v1"
    assert lines(tail()) == []
    assert (tmp_path / ".mutation-ledger" / "tail.cursor").exists()
    assert (tmp_path / ".mutation-ledger").stat().st_mode & 0o077 == 0


def test_from_start_reads_what_is_kept_whatever_was_read_before(tail: Cli, publisher: Publisher) -> None:
    publisher.publish(1)
    publisher.publish(9)
    assert len(lines(tail("--from-start"))) == 2
    assert lines(tail()) == []
    assert len(lines(tail("--from-start"))) == 2


def test_cursors_of_different_files_and_tenants_are_apart(tail: Cli, publisher: Publisher, tmp_path: Path) -> None:
    publisher.publish(1, tenant="acme")
    publisher.publish(1, tenant="a/b")
    assert len(lines(tail("--cursor", "mine", "--from-start"))) == 2
    assert (tmp_path / "mine").exists()
    assert [line["tenant"] for line in lines(tail("--tenant", "a/b", "--from-start"))] == ["a/b"]
    assert lines(tail("--tenant", "a/b")) == []
    assert [line["tenant"] for line in lines(tail("--tenant", "acme", "--from-start"))] == ["acme"]
    publisher.publish(2, tenant="a/b")
    assert len(lines(tail("--cursor", "mine"))) == 1
    assert lines(tail("--tenant", "acme")) == []
    assert len(lines(tail("--tenant", "a/b"))) == 1


def test_a_gap_is_one_line_and_resync_is_the_way_out(
    tail: Cli, publisher: Publisher, valkey_session: ValkeyProcess
) -> None:
    publisher.publish(1)
    assert len(lines(tail("--from-start"))) == 1
    publisher.publish(1)
    publisher.store.run(sweep_retention(1, 1_000, 0, interval_ms=1))
    for _ in range(2):
        ran = tail()
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith("error: the cursor ")
        assert ran.err.endswith("trimmed before they were read; run again with --resync\n")
    assert len(lines(tail("--resync"))) == 2
    assert lines(tail()) == []
    valkey_session.client().flushall()
    assert "the store is not the one it was saved for; run again with --resync" in tail().err


def test_resync_and_from_start_exclude_each_other(tail: Cli) -> None:
    assert tail("--resync", "--from-start").code == 2


def test_a_damaged_cursor_file_is_named(tail: Cli, publisher: Publisher, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("{")
    ran = tail("--cursor", "mine")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "the cursor file mine cannot be used: damaged" in ran.err


class Following:
    """`tail` as a process that follows."""

    def __init__(self, url: str, folder: Path) -> None:
        self.output = folder / "lines"
        self.errors = folder / "errors"
        command = [sys.executable, "-m", "ledger.cli", "tail", "--redis-url", url, "--cursor", "mine", "--from-start"]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        with self.output.open("wb") as out, self.errors.open("wb") as err:
            self.process = subprocess.Popen(command_line(command), cwd=folder, env=env, stdout=out, stderr=err)

    def await_lines(self, count: int) -> None:
        wait_until(lambda: len(self.output.read_text().splitlines()) >= count, 20, f"{count} lines")

    def end(self) -> int:
        try:
            self.process.send_signal(signal.SIGINT)
            return self.process.wait(30)
        finally:
            self.process.kill()
            self.process.wait(10)


def test_following_outlives_a_store_that_restarts(valkey: ValkeyProcess, tmp_path: Path) -> None:
    publisher = Publisher(valkey.url)
    publisher.publish(1)
    following = Following(valkey.url, tmp_path)
    following.await_lines(1)
    valkey.kill9()
    wait_until(lambda: "asking again in" in following.errors.read_text(), 20, "the outage to be told")
    valkey.restart()
    Publisher(valkey.url).publish(2)
    following.await_lines(2)
    assert following.end() == 0, "Ctrl-C is how a tail ends"
    shards = [json.loads(line)["shard"] for line in following.output.read_text().splitlines()]
    assert shards == [1, 2]
    publisher.close()


def test_an_interrupt_that_was_dropped_comes_again() -> None:
    """As it is when it falls into a finalizer of some library: the exception ends there."""

    def dropped_once() -> None:
        with interrupts():
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            wait_until(lambda: False, 10, "the interrupt to come again")

    with pytest.raises(KeyboardInterrupt):
        dropped_once()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_reader_that_goes_away_ends_it(store_url: str, publisher: Publisher, tmp_path: Path) -> None:
    publisher.publish(1, calls=3)
    command = [sys.executable, "-m", "ledger.cli", "tail", "--redis-url", store_url, "--from-start"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command_line(command), cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert b"mutation_outcome/v1" in process.stdout.readline()
    process.stdout.close()
    publisher.publish(1)
    assert process.wait(10) == 1
    assert process.stderr.read() == b""
    process.stderr.close()
