"""The command line's frame: exit codes, one-line errors, lazy commands, common options."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from ledger.cli import group, main
from ledger.cli.options import DEFAULT_DATA, Settings, common
from ledger.embedded.address import URL_FILE
from ledger.errors import ConfigError, LedgerError
from tests.support.cli import run


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty directory to stand in and no settings in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("MUTATION_LEDGER")]:
        monkeypatch.delenv(name)


class Point:
    """Stands for an entry point."""

    def __init__(self, name: str, loaded: Callable[[], Any]) -> None:
        self.name = name
        self.load = loaded


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], Any]], None]:
    """Adds a command as another package would."""
    points: list[Point] = []
    monkeypatch.setattr(
        group, "entry_points", lambda *, group, name=None: [p for p in points if name in (None, p.name)]
    )
    return lambda name, loaded: points.append(Point(name, loaded))


def failing(error: Exception) -> click.Command:
    """A command that raises."""

    def callback() -> None:
        raise error

    return click.Command("failing", callback=callback)


def test_a_rule_that_does_not_hold_is_one_line_and_exit_1(capsys: Any, add: Any) -> None:
    add("failing", lambda: failing(LedgerError("it is\nso")))
    ran = run(capsys, "failing")
    assert (ran.code, ran.out, ran.err) == (1, "", "error: it is so\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["absent"], "error: No such command 'absent'. (see `mutation-ledger --help`)\n"),
        (
            ["up", "--prot", "1"],
            "error: No such option '--prot'. Did you mean '--port'? (see `mutation-ledger up --help`)\n",
        ),
        (["token"], ""),
    ],
)
def test_wrong_usage_is_exit_2(capsys: Any, arguments: list[str], line: str) -> None:
    ran = run(capsys, *arguments)
    assert (ran.code, ran.out) == (2, "")
    if line:
        assert ran.err == line


def test_without_a_command_the_help_is_shown_as_an_error(capsys: Any) -> None:
    ran = run(capsys)
    assert ran.code == 2
    assert "Commands:" in ran.err


@pytest.mark.parametrize(("error", "line"), [(KeyboardInterrupt(), "interrupted"), (click.Abort(), "interrupted")])
def test_an_interruption_is_exit_1(capsys: Any, add: Any, error: Any, line: str) -> None:
    add("failing", lambda: failing(error))
    ran = run(capsys, "failing")
    assert (ran.code, ran.err.strip()) == (1, f"error: {line}")


def test_an_exit_code_chosen_by_a_command_is_kept(capsys: Any, add: Any) -> None:
    add("failing", lambda: failing(click.exceptions.Exit(1)))
    add("fine", lambda: click.Command("fine", callback=lambda: None))
    assert run(capsys, "failing").code == 1
    assert run(capsys, "fine").code == 0


def test_version_and_help(capsys: Any) -> None:
    assert run(capsys, "--version").out.startswith("mutation-ledger, version ")
    for arguments in (["--help"], ["-h"], ["up", "--help"], ["doctor", "-h"], ["token", "new", "-h"]):
        ran = run(capsys, *arguments)
        assert (ran.code, ran.err) == (0, "")
        assert "--help" in ran.out


def test_a_command_that_cannot_be_imported_hides_nothing_and_says_so(capsys: Any, add: Any) -> None:
    def broken() -> Any:
        raise ImportError("No module named 'service.command'")

    add("serve", broken)
    assert "doctor" in run(capsys, "--help").out
    ran = run(capsys, "serve", "--port", "1")
    assert (ran.code, ran.err) == (1, "error: the command serve cannot be loaded: No module named 'service.command'\n")


def test_what_is_no_command_is_refused(capsys: Any, add: Any) -> None:
    add("odd", lambda: "text")
    assert run(capsys, "odd").err == "error: odd is not a click command\n"


def test_starting_the_command_line_imports_no_server() -> None:
    code = (
        "import sys; import ledger.cli; print(sorted({'rq', 'flask', 'gunicorn', 'mcp', 'gevent'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "ledger.cli", "--help"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.fixture
def seen(add: Any) -> list[Settings]:
    """The settings that a command `look` was given."""
    given: list[Settings] = []

    @click.command()
    @common
    def look(settings: Settings) -> None:
        given.append(settings)

    add("look", lambda: look)
    return given


def test_common_options_may_stand_before_and_after_the_command(capsys: Any, seen: list[Settings]) -> None:
    run(capsys, "--data", "outer", "--json", "look", "--redis-url", "redis://h")
    run(capsys, "--data", "outer", "look", "--data", "inner", "--config", "c.toml")
    run(capsys, "look")
    assert seen == [
        Settings(None, Path("outer"), "redis://h", json=True),
        Settings(Path("c.toml"), Path("inner"), None, json=False),
        Settings(),
    ]
    assert seen[2].data_dir == DEFAULT_DATA.absolute()


def test_the_environment_names_file_and_directory(
    capsys: Any, seen: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUTATION_LEDGER_CONFIG", "env.toml")
    monkeypatch.setenv("MUTATION_LEDGER_DATA", "env-data")
    run(capsys, "look")
    run(capsys, "look", "--data", "given")
    assert [(s.config_path, s.data) for s in seen] == [
        (Path("env.toml"), Path("env-data")),
        (Path("env.toml"), Path("given")),
    ]


def test_the_file_beside_is_used_when_none_is_given() -> None:
    assert Settings().config_file is None
    Path("mutation-ledger.toml").write_text("[service]\nport = 77\n")
    assert Settings().config.service.port == 77
    Path("other.toml").write_text("[service]\nport = 78\n")
    assert Settings(config_path=Path("other.toml")).config.service.port == 78


def test_the_store_is_the_option_then_the_file_then_the_one_under_data(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Path("data")
    with pytest.raises(ConfigError, match=r"^no store runs under .*data; start `mutation-ledger up` or give --redis"):
        Settings(data=data).store_url()
    data.mkdir()
    (data / URL_FILE).write_text("unix:///run/x.sock\n")
    assert Settings(data=data).store_url() == "unix:///run/x.sock"
    Path("mutation-ledger.toml").write_text('[redis]\nurl = "env:STORE"\n')
    monkeypatch.setenv("STORE", "redis://from-env")
    assert Settings(data=data).store_url() == "redis://from-env"
    assert Settings(data=data, redis_url="redis://given").store_url() == "redis://given"


def test_main_reads_the_process_arguments(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["mutation-ledger", "--version"])
    assert main() == 0
    assert "version" in capsys.readouterr().out
