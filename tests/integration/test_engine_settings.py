"""An engine reads its settings as the front door and the workers do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ledger.config import Config, Role, TokenConfig
from ledger.engine import Engine, HumanDecision
from ledger.errors import ConfigError
from ledger.tokens import TOKENS_FILE, token_hash, write_entries
from tests.support.hosting import Listening, message
from tests.support.wait import wait_until

KEY = {"tombstone_key": "k" * 32}


def config(url: str, **more: Any) -> Config:
    """A configuration of this store."""
    return Config.model_validate({"redis": {"url": url}, "retention": KEY, **more})


def test_the_stores_url_may_stand_in_the_environment(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_TEST_STORE", store_url)
    with Engine(config("env:LEDGER_TEST_STORE")) as engine:
        assert engine.sessions.mutation_outcomes("none") == []


def test_a_missing_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEDGER_TEST_STORE", raising=False)
    with pytest.raises(ConfigError, match="the environment variable LEDGER_TEST_STORE is not set"):
        Engine(config("env:LEDGER_TEST_STORE"))


def token(name: str, tenant: str, role: Role) -> TokenConfig:
    """An entry as `up` makes it."""
    return TokenConfig(name=name, tenant=tenant, sha256=token_hash(f"{name} {tenant}"), roles=[role])


@pytest.mark.proves("C-42")
@pytest.mark.parametrize(
    ("by", "answer"),
    [
        ("approver", "approved"),
        ("configured", "approved"),
        ("agent", "not_an_approver"),
        ("elsewhere", "not_an_approver"),
    ],
)
def test_tokens_of_the_data_directory_decide_as_at_the_front_door(
    store_url: str, tmp_path: Path, by: str, answer: str
) -> None:
    made = [
        token("approver", "acme", Role.APPROVE),
        token("agent", "acme", Role.TRIGGER),
        token("elsewhere", "umbrella", Role.APPROVE),
    ]
    write_entries(tmp_path / TOKENS_FILE, made)
    given = {
        "tokens": [token("configured", "acme", Role.APPROVE).model_dump(mode="json")],
        "mcp": {"servers": {"box": {"command": ["false"], "tools": {"pay": {"human": "approve"}}}}},
    }
    adapter = Listening(lambda _: HumanDecision(True, by))
    with Engine(config(store_url, **given), tenant="acme", principal="host", agent="ops", data_dir=tmp_path) as engine:
        engine.handle_with_results(message("s1", ("mcp__box__pay", {"n": 1})), adapter, wait_seconds=1.0)
        wait_until(lambda: adapter.decisions == [answer], 5, "the answer")


def test_a_damaged_token_file_is_named(tmp_path: Path) -> None:
    (tmp_path / TOKENS_FILE).write_text("tokens = 1\n")
    with pytest.raises(ConfigError, match=r"tokens\.toml is damaged"):
        Engine(config("redis://127.0.0.1:1/0"), data_dir=tmp_path)
