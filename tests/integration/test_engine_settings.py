"""An engine reads its settings as the front door and the workers do."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.config import Config
from ledger.engine import Engine
from ledger.errors import ConfigError

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
