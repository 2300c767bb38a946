"""`token new` and `token check`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ledger.tokens import TOKENS_FILE, token_hash
from tests.support.cli import run

ENTRY = '[[tokens]]\nname = "ops"\nsha256 = "%s"\ntenant = "acme"\nroles = ["read", "trigger"]\n'


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty directory to stand in and no settings in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("MUTATION_LEDGER")]:
        monkeypatch.delenv(name)


def test_a_new_token_comes_with_its_digest(capsys: Any) -> None:
    made = run(capsys, "token", "new", "--json").json
    assert made == {"token": made["token"], "sha256": token_hash(made["token"])}
    first, second = run(capsys, "token", "new").out.splitlines()
    assert second == f"sha256  {token_hash(first.removeprefix('token   '))}"


def test_check_shows_whose_a_token_is(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mutation-ledger.toml").write_text(ENTRY % token_hash("one") + 'agents = ["a", "b"]\nact_for_users = true\n')
    ran = run(capsys, "token", "check", "--token", "one")
    assert (ran.code, ran.out) == (
        0,
        "name    ops\ntenant  acme\nroles   trigger, read\nagents  a, b\nusers   any\n",
    )
    monkeypatch.setenv("MUTATION_LEDGER_TOKEN", "one")
    assert run(capsys, "token", "check", "--json").json == {
        "name": "ops",
        "tenant": "acme",
        "roles": ["trigger", "read"],
        "agents": ["a", "b"],
        "act_for_users": True,
    }


def test_check_knows_the_tokens_that_up_made(capsys: Any) -> None:
    Path("data").mkdir()
    (Path("data") / TOKENS_FILE).write_text(ENTRY % token_hash("made"))
    ran = run(capsys, "token", "check", "--data", "data", "--token", "made")
    assert ran.out == "name    ops\ntenant  acme\nroles   trigger, read\nagents  any\nusers   itself only\n"


def test_check_of_an_unknown_token_is_exit_1_and_does_not_show_it(capsys: Any) -> None:
    ran = run(capsys, "token", "check", "--token", "hunter2")
    assert (ran.code, ran.out, ran.err) == (1, "", "error: the token matches none of the 0 known\n")
