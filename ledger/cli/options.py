"""The options that every command takes, and what they lead to."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ledger.config import DEFAULT_FILE, Config, load, with_secrets
from ledger.embedded import find_url
from ledger.errors import ConfigError

DEFAULT_DATA = Path(".mutation-ledger")


@dataclass(frozen=True)
class Settings:
    """The common options of one invocation; None means not given."""

    config_path: Path | None = None
    data: Path | None = None
    redis_url: str | None = None
    json: bool = False

    @property
    def data_dir(self) -> Path:
        """The data directory, absolute; it need not exist."""
        return (self.data or DEFAULT_DATA).absolute()

    @property
    def config_file(self) -> Path | None:
        """The file in use: the one given, else `mutation-ledger.toml` if it is here, else None."""
        if self.config_path is not None:
            return self.config_path
        return DEFAULT_FILE if DEFAULT_FILE.exists() else None

    @functools.cached_property
    def config(self) -> Config:
        """The configuration with the command line's overrides. Raises ConfigError, one line."""
        overrides = {"redis": {"url": self.redis_url}} if self.redis_url is not None else None
        return load(self.config_file, overrides=overrides)

    def configured_url(self) -> str | None:
        """The store's URL from option, environment or file, secrets resolved; None: the embedded store."""
        return with_secrets(self.config).redis.url

    def store_url(self) -> str:
        """The URL of the store to talk to. Raises ConfigError if none is given and none runs under --data."""
        url = self.configured_url() or find_url(self.data_dir)
        if url is None:
            raise ConfigError(f"no store runs under {self.data_dir}; start `mutation-ledger up` or give --redis-url")
        return url

    def over(self, outer: Settings | None) -> Settings:
        """These options, falling back to those given before the command's name."""
        if outer is None:
            return self
        return Settings(
            self.config_path or outer.config_path,
            self.data or outer.data,
            self.redis_url or outer.redis_url,
            self.json or outer.json,
        )


def common(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with --config, --data, --redis-url and --json; it gets them as `settings`."""
    path = click.Path(path_type=Path)

    @click.option("--config", "config_path", type=path, envvar="MUTATION_LEDGER_CONFIG", help="Configuration file.")
    @click.option("--data", type=path, envvar="MUTATION_LEDGER_DATA", help=f"Data directory [{DEFAULT_DATA}].")
    @click.option("--redis-url", help="The store; without it, the embedded one under --data.")
    @click.option("--json", "as_json", is_flag=True, help="Print data as JSON.")
    @functools.wraps(function)
    def wrapper(
        *args: Any,
        config_path: Path | None,
        data: Path | None,
        redis_url: str | None,
        as_json: bool,
        **kwargs: Any,
    ) -> Any:
        outer = click.get_current_context().find_root().obj
        given = Settings(config_path, data, redis_url, as_json)
        return function(*args, settings=given.over(outer if isinstance(outer, Settings) else None), **kwargs)

    return wrapper
