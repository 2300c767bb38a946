"""Store commands on a real Valkey: `sessions`, `show`, `unknowns`, `reconcile`, `store accept`."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ledger.acceptance import accept_store
from ledger.cli.group import cli
from ledger.config import RedisConfig
from ledger.consumer.keys import outcomes_key
from ledger.embedded import EmbeddedStore
from ledger.errors import StoreWentBack
from ledger.history import read_session
from ledger.states import MutationStatus
from ledger.store import StoreSettings
from tests.support.cli import Ran, run
from tests.support.publishing import SHARDS, Publisher, session_in
from tests.support.valkey import ValkeyProcess, free_port
from tests.support.wait import wait_until

Cli = Callable[..., Ran]
UNKNOWN = MutationStatus.OUTCOME_UNKNOWN


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
def ml(store_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line with a configuration that knows this store and one tenant."""
    write_config(tmp_path, store_url, "acme")
    return lambda *arguments: run(capsys, *arguments)


def write_config(folder: Path, url: str, *tenants: str) -> None:
    tokens = "".join(
        f'[[tokens]]\nname = "t{n}"\nsha256 = "{n:064x}"\ntenant = "{tenant}"\nroles = ["read"]\n'
        for n, tenant in enumerate(tenants)
    )
    (folder / "mutation-ledger.toml").write_text(f'[redis]\nurl = "{url}"\n{tokens}')


def only_unknown(ml: Cli) -> dict[str, Any]:
    (found,) = ml("unknowns", "--json").json["unknowns"]
    row: dict[str, Any] = found
    return row


def test_sessions_are_listed_newest_first_from_every_shard(ml: Cli, publisher: Publisher) -> None:
    made = [publisher.publish(shard) for shard in range(SHARDS)]
    publisher.publish(3, tenant="other")
    listed = ml("sessions", "--json").json["sessions"]
    assert [row["session_id"] for row in listed] == made[::-1]
    assert {(row["live_runs"], row["turns"]) for row in listed} == {(0, 1)}
    assert [row["session_id"] for row in ml("sessions", "--json", "--limit", 2).json["sessions"]] == made[:-3:-1]
    table = ml("sessions").out.splitlines()
    assert table[0].split() == ["session", "last", "delivery", "live", "runs", "turns"]
    assert len(table) == 1 + SHARDS
    assert table[1].split()[0] == made[-1]


def test_the_tenant_must_be_given_where_there_are_several(ml: Cli, publisher: Publisher, store_url: str) -> None:
    publisher.publish(3, tenant="other")
    write_config(Path(), store_url, "acme", "other", "other")
    ran = ml("sessions")
    assert ran.code == 2
    assert ran.err.startswith("error: give --tenant: the tokens name acme, other")
    assert len(ml("sessions", "--json", "--tenant", "other").json["sessions"]) == 1
    write_config(Path(), store_url)
    assert "no token names a tenant" in ml("sessions").err
    assert "no token names a tenant" in ml("unknowns").err


def test_tokens_that_up_made_name_the_tenant(ml: Cli, publisher: Publisher, store_url: str, tmp_path: Path) -> None:
    write_config(tmp_path, store_url)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tokens.toml").write_text(
        f'[[tokens]]\nname = "x"\nsha256 = "{1:064x}"\ntenant = "made"\nroles = ["read"]\n'
    )
    session = publisher.publish(3, tenant="made")
    assert session in ml("sessions", "--data", "data").out


def test_unknowns_are_what_waits_for_a_person(ml: Cli, publisher: Publisher) -> None:
    publisher.publish(1)
    session = publisher.publish(2, status=UNKNOWN)
    found = only_unknown(ml)
    assert (found["session_id"], found["status"], found["tool"]) == (session, "outcome_unknown", "mcp__boards__create")
    assert found["outcome"]["status"] == "outcome_unknown"
    row = ml("unknowns").out.splitlines()[1].split()
    assert row[:3] == [session, found["logical_turn_id"], found["mutation_id"][:12]]


def test_show_prints_turns_and_mutations(ml: Cli, publisher: Publisher) -> None:
    session = session_in(6)
    publisher.admit(session, 2)
    publisher.work()
    publisher.admit(session, 1)
    publisher.work(status=UNKNOWN)
    shown = ml("show", session, "--json").json
    assert [[m["status"] for m in turn["mutations"]] for turn in shown["turns"]] == [
        ["completed", "completed"],
        ["outcome_unknown"],
    ]
    text = ml("show", session).out
    for turn in shown["turns"]:
        assert turn["logical_turn_id"] in text
        assert all(mutation["mutation_id"][:12] in text for mutation in turn["mutations"])


@pytest.mark.proves("C-83")
def test_arguments_are_shown_only_when_asked_for(ml: Cli, publisher: Publisher) -> None:
    session = session_in(6)
    publisher.admit(session, 1)
    publisher.work()
    publisher.admit(session, 1)
    publisher.work(status=UNKNOWN)
    publisher.admit(session, 1, level="confirm")
    for options in ([], ["--json"]):
        assert "secret-0" not in ml("show", session, *options).out
    assert "secret" not in ml("unknowns", "--json").out
    shown = ml("show", session, "--json", "--arguments").json
    done, unknown = (turn["mutations"][0] for turn in shown["turns"])
    assert "arguments" not in done
    assert unknown["arguments"] == {"title": "secret-0"}
    (waiting,) = shown["waiting"]
    assert (waiting["level"], waiting["arguments"]) == ("confirm", {"title": "secret-0"})
    assert ml("show", session, "--arguments").out.count("secret-0") == 2


def test_show_lists_what_waits_in_this_session_and_has_not_expired(ml: Cli, publisher: Publisher) -> None:
    session, other = session_in(6), session_in(6)
    publisher.admit(other, 1, level="approve")
    publisher.admit(session, 2, level="approve")
    assert len(ml("show", session, "--json").json["waiting"]) == 2
    late = session_in(6)
    publisher.admit(late, 1, level="approve", approval_ms=1)
    publisher.admit(late, 1, level="approve")
    wait_until(lambda: len(ml("show", late, "--json").json["waiting"]) == 1, 5, "the first request to expire")


def test_show_knows_only_its_tenants_sessions(ml: Cli, publisher: Publisher) -> None:
    session = publisher.publish(3, tenant="other")
    ran = ml("show", session)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"error: tenant acme has no session {session}; see `mutation-ledger sessions`\n"


@pytest.mark.proves("C-91")
def test_reconcile_settles_an_unknown_outcome(ml: Cli, publisher: Publisher, valkey_session: ValkeyProcess) -> None:
    session = publisher.publish(2, status=UNKNOWN)
    found = only_unknown(ml)
    command = ("reconcile", session, found["logical_turn_id"], found["mutation_id"][:10], "--completed")
    ran = ml(*command)
    assert ran.code == 0
    assert ran.json["record"]["status"] == "completed"
    assert (ran.json["mutation_revision"], ran.json["how"]) == (3, "reconciled")
    assert ran.err == "reconciled: mcp__boards__create is completed, revision 3\n"
    assert ml(*command).json["how"] == "repeated"
    assert ml("unknowns", "--json").json["unknowns"] == []
    (entry,) = ml("show", session, "--json").json["turns"][0]["mutations"]
    assert entry["reconciled_by"] == f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
    newest: Any = valkey_session.client().xrevrange(outcomes_key(2), count=1)
    ((_, fields),) = newest
    assert json.loads(fields[b"record"]) == ran.json["record"]
    refused = ml(*command[:-1], "--not-executed")
    assert (refused.code, refused.err.startswith("error: only unknown outcomes are reconciled")) == (1, True)


@pytest.mark.proves("C-91")
def test_an_attempt_that_may_be_running_wants_its_dispatcher_stopped(ml: Cli, publisher: Publisher) -> None:
    session = session_in(2)
    publisher.admit(session)
    publisher.begin(2)
    ledger = publisher.store.run(read_session("acme", session, SHARDS))
    assert ledger is not None
    (entry,) = ledger.turns[0].entries
    command = ("reconcile", session, entry.logical_turn_id, entry.mutation_id)
    early = ml(*command, "--completed")
    assert (early.code, "still under way" in early.err) == (1, True)
    refused = ml(*command, "--not-executed")
    assert refused.code == 1
    assert "may be running until 20" in refused.err
    assert "add --dispatcher-stopped" in refused.err
    ran = ml(*command, "--not-executed", "--dispatcher-stopped", "--json")
    assert (ran.code, ran.json["record"]["status"], ran.err) == (0, "not_executed", "")
    (shown,) = ml("show", session, "--json").json["turns"][0]["mutations"]
    assert shown["status"] == "approved"
    assert shown["reconciled_by"].endswith("(dispatcher stopped)")


@pytest.mark.proves("C-91")
@pytest.mark.parametrize("flags", [[], ["--completed", "--not-executed"]])
def test_reconcile_never_guesses_what_happened(ml: Cli, publisher: Publisher, flags: list[str]) -> None:
    session = publisher.publish(2, status=UNKNOWN)
    found = only_unknown(ml)
    ran = ml("reconcile", session, found["logical_turn_id"], found["mutation_id"], *flags)
    assert ran.code == 2
    assert only_unknown(ml)["status"] == "outcome_unknown"


def test_reconcile_names_what_it_cannot_find(ml: Cli, publisher: Publisher) -> None:
    session = publisher.publish(2, status=UNKNOWN)
    turn = only_unknown(ml)["logical_turn_id"]
    for arguments in (
        [session, turn, "f" * 64],
        ["nope", turn, "f" * 64],
        [session, "x", "f" * 64],
        [session, turn, "f" * 64, "--tenant", "other"],
    ):
        ran = ml("reconcile", *arguments, "--completed")
        assert (ran.code, ran.err.startswith("error: no such mutation")) == (1, True)
    assert ml("reconcile", session, turn, "not-hex", "--completed").code == 2


@pytest.mark.proves("C-27")
def test_accepting_makes_every_process_go_on_under_one_new_id(
    ml: Cli, publisher: Publisher, valkey_session: ValkeyProcess, store_url: str
) -> None:
    """Emptied while a process lives, which meets one shard, stops all, and goes on everywhere once accepted."""
    publisher.publish(4)
    client = valkey_session.client()
    client.flushall()
    with pytest.raises(StoreWentBack):
        publisher.publish(4)
    ran = ml("sessions")
    assert (ran.code, "store accept" in ran.err) == (1, True)
    accepted = ml("store", "accept", "--yes", "--json")
    assert accepted.code == 0
    assert "16 of 16 shards are refused" in accepted.err
    ids = {client.hget(f"ml:{{{shard:02x}}}:seq", "store") for shard in range(SHARDS)}
    assert ids == {accepted.json["store_id"].encode()}
    for shard in range(SHARDS):
        publisher.publish(shard)
    Publisher(store_url).publish(4)
    assert len(ml("sessions", "--json").json["sessions"]) == SHARDS + 1


@pytest.mark.proves("C-27")
def test_accepting_ends_live_runs_and_publishes_what_was_started(ml: Cli, publisher: Publisher) -> None:
    waiting, running = session_in(9), session_in(9)
    publisher.admit(waiting, 2, level="approve")
    publisher.admit(running)
    (claimed,) = publisher.begin(9)
    publisher.store.command([["HSET", "ml:{09}:seq", "refused", "x"]])
    accepted = ml("store", "accept", "--yes", "--json")
    assert accepted.json["runs_ended"] == 2
    assert only_unknown(ml)["session_id"] == running
    assert ml("show", waiting, "--json").json["waiting"] == []
    assert publisher.begin(9) == []
    # Its own worker may still say first-hand what came of it (C-32).
    publisher.settle(9, claimed)
    assert ml("unknowns", "--json").json["unknowns"] == []


@pytest.mark.proves("C-27")
def test_many_live_runs_are_ended_in_pieces(ml: Cli, publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.acceptance.RUNS_AT_ONCE", 3)
    for _ in range(10):
        publisher.admit(session_in(9))
    accepted = ml("store", "accept", "--yes", "--json")
    assert accepted.json["runs_ended"] == 10
    assert publisher.begin(9) == []


@pytest.mark.proves("C-27")
def test_an_accept_that_was_cut_off_is_begun_again(publisher: Publisher, store_url: str) -> None:
    settings = StoreSettings(RedisConfig(url=store_url))

    def stop(shard: int) -> None:
        if shard == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        accept_store(settings, each=stop)
    first = accept_store(settings)
    for shard in range(SHARDS):
        publisher.publish(shard)
    Publisher(store_url).publish(2)
    assert accept_store(settings).store_id != first.store_id


def test_accepting_asks_first(store_url: str, publisher: Publisher, tmp_path: Path) -> None:
    write_config(tmp_path, store_url, "acme")
    before = publisher.store.command([["HGET", "ml:{00}:seq", "store"]])
    refused = CliRunner().invoke(cli, ["store", "accept"], input="n\n")
    assert refused.exit_code == 1
    assert "NOT refused" in refused.stderr
    assert publisher.store.command([["HGET", "ml:{00}:seq", "store"]]) == before
    accepted = CliRunner().invoke(cli, ["store", "accept"], input="y\n")
    assert accepted.exit_code == 0
    assert accepted.stdout.startswith("accepted: store ")
    assert publisher.store.command([["HGET", "ml:{00}:seq", "store"]]) != before


def test_a_store_of_another_size_is_refused_before_anything_is_written(ml: Cli, publisher: Publisher) -> None:
    with Path("mutation-ledger.toml").open("a") as file:
        file.write("[service]\nport = 1\n")
    text = Path("mutation-ledger.toml").read_text().replace("[redis]\n", "[redis]\nshards = 8\n")
    Path("mutation-ledger.toml").write_text(text)
    before = publisher.store.command([["HGETALL", "ml:{00}:seq"]])
    for command in (["store", "accept", "--yes"], ["sessions"]):
        ran = ml(*command)
        assert (ran.code, "set shards = 16" in ran.err) == (1, True)
    assert publisher.store.command([["HGETALL", "ml:{00}:seq"]]) == before


def test_a_store_that_is_not_there_is_one_line_with_the_fix(ml: Cli, tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    for command in (["sessions"], ["show", "x"], ["unknowns"], ["store", "accept", "--yes"], ["tail", "--once"]):
        ran = ml(*command, "--redis-url", url)
        assert (ran.code, ran.out) == (1, ""), command
        assert ran.err.count("\n") == 1, ran.err
        assert "start it, or correct redis.url" in ran.err
    (tmp_path / "mutation-ledger.toml").unlink()
    assert "start `mutation-ledger up` or give --redis-url" in ml("sessions", "--tenant", "acme").err


def test_the_embedded_store_is_found_by_its_data_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    with EmbeddedStore(data) as store:
        publisher = Publisher(store.url)
        session = publisher.publish(3)
        assert session in run(capsys, "sessions", "--data", data, "--tenant", "acme").out
        assert session in run(capsys, "tail", "--data", data, "--once", "--from-start").out
        assert run(capsys, "store", "accept", "--data", data, "--yes").code == 0
        publisher.close()
    assert "start `mutation-ledger up`" in run(capsys, "sessions", "--data", data, "--tenant", "acme").err


def test_the_commands_work_as_processes(store_url: str, publisher: Publisher, tmp_path: Path) -> None:
    """What a shell sees: exit codes, one line on standard error, JSON on standard output."""
    session = publisher.publish(2, status=UNKNOWN)
    write_config(tmp_path, store_url, "acme")

    def shell(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ledger.cli", *arguments]
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)

    listed = json.loads(shell("unknowns", "--json").stdout)["unknowns"][0]
    missing = shell("show", "nope")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.count("\n") == 1
    ran = shell("reconcile", session, listed["logical_turn_id"], listed["mutation_id"], "--completed")
    assert (ran.returncode, json.loads(ran.stdout)["record"]["status"]) == (0, "completed")
    assert shell("reconcile", session).returncode == 2
