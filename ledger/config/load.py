"""Reading the configuration: TOML file, then environment, then overrides; every error is one line."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, Field, ValidationError, model_validator

from ledger.config.sections import (
    BudgetConfig,
    PluginsConfig,
    ReadbacksConfig,
    RedisConfig,
    RetentionConfig,
    ServiceConfig,
    TimingConfig,
    TokenConfig,
    WorkersConfig,
)
from ledger.config.tools import McpConfig, PolicyConfig
from ledger.config.values import Section
from ledger.errors import ConfigError

DEFAULT_FILE = Path("mutation-ledger.toml")
PREFIX = "MUTATION_LEDGER__"
# What a cancelled call is given to end by itself (C-52); part of the contract, not of the settings.
CANCEL_RESERVE_SECONDS = 5
_SUBJECT = re.compile(r"\A(Value error, |\w+ should(?= ))")


class Config(Section):
    """The whole file. Every section is optional; defaults are those of the documentation."""

    redis: RedisConfig = RedisConfig()
    service: ServiceConfig = ServiceConfig()
    workers: WorkersConfig = WorkersConfig()
    tokens: list[TokenConfig] = Field(default_factory=list)
    mcp: McpConfig = McpConfig()
    policy: PolicyConfig = PolicyConfig()
    budget: BudgetConfig | None = None
    timing: TimingConfig = TimingConfig()
    retention: RetentionConfig = RetentionConfig()
    readbacks: ReadbacksConfig = ReadbacksConfig()
    plugins: PluginsConfig = PluginsConfig()

    @model_validator(mode="after")
    def _across_sections(self) -> Self:
        reserve = self.timing.wrap_up_seconds + CANCEL_RESERVE_SECONDS
        if self.budget is not None and self.budget.request_ceiling_seconds <= reserve:
            raise ValueError(f"budget.request_ceiling_seconds must exceed timing.wrap_up_seconds + 5 = {reserve:g} s")
        hashes = [token.sha256 for token in self.tokens]
        if len(set(hashes)) != len(hashes):
            raise ValueError("two [[tokens]] have the same sha256; each token belongs to one entry")
        return self


def load(
    path: Path | None = None,
    *,
    env: Mapping[str, str] = os.environ,
    overrides: Mapping[str, Any] | None = None,
) -> Config:
    """The configuration from `path` (None: defaults), `MUTATION_LEDGER__SECTION__KEY`, then `overrides`.

    `overrides` has the shape of the file and wins. Raises ConfigError, one line that names the setting;
    values are never quoted, because they may be secrets.
    """
    data = _read(path) if path is not None else {}
    for name in sorted(env):
        if name.startswith(PREFIX):
            _apply_env(data, name, env[name])
    _merge(data, overrides or {})
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        where = f"{path}: " if path is not None else ""
        raise ConfigError(where + _one_line(error)) from None


def resolve_secret(value: str, env: Mapping[str, str] = os.environ) -> str:
    """The secret that `env:NAME` refers to, or `value` itself. Raises ConfigError if NAME is not set."""
    if not value.startswith("env:"):
        return value
    name = value.removeprefix("env:")
    secret = env.get(name)
    if not secret:
        raise ConfigError(f"the environment variable {name} is not set, but the configuration refers to it")
    return secret


def with_secrets(config: Config, env: Mapping[str, str] = os.environ) -> Config:
    """`config` with the store's URL itself where `redis.url` is `env:NAME`.

    Secrets of tools and of the tombstone key stay references until they are used. Raises ConfigError if NAME is not
    set, or holds no URL of a store.
    """
    if config.redis.url is None:
        return config
    url = resolve_secret(config.redis.url, env)
    try:
        redis = RedisConfig.model_validate({**config.redis.model_dump(), "url": url})
    except ValidationError as error:
        raise ConfigError(f"redis.{_one_line(error)}") from None
    return config.model_copy(update={"redis": redis})


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error).splitlines()[0]
        raise ConfigError(f"{path} is not TOML: {reason}") from None


def _apply_env(data: dict[str, Any], name: str, text: str) -> None:
    *parents, last = [part.lower() for part in name.removeprefix(PREFIX).split("__")]
    annotation: Any = Config
    table = data
    for part in parents:
        annotation, key = _known(name, annotation, part, table)
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{name}: {key} is not a table")
    annotation, last = _known(name, annotation, last, table)
    table[last] = text if _takes_text(annotation) else _value(name, text)


def _known(name: str, annotation: Any, part: str, table: Mapping[str, Any]) -> tuple[Any, str]:
    """The type below `annotation` at `part`, and the key in the file's spelling: env names have no case."""
    key = next((existing for existing in table if existing.lower() == part), part)
    below = _below(annotation, key)
    if below is None:
        raise ConfigError(f"{name}: unknown setting{_nearest(part, _keys(annotation))}")
    return below, key


def _value(name: str, text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        raise ConfigError(f"{name}: not a TOML value (a number, true, false, or a list or table)") from None


def _merge(data: dict[str, Any], overrides: Mapping[str, Any]) -> None:
    for key, value in overrides.items():
        below = data.get(key)
        if isinstance(value, Mapping) and isinstance(below, dict):
            _merge(below, value)
        else:
            data[key] = value


def _one_line(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    first = problems[0]
    loc = [part for part in first["loc"] if part != "[key]"]
    where = ".".join(str(part) for part in loc)
    if first["type"] == "extra_forbidden":
        text = f"unknown setting {where}{_nearest(str(loc[-1]), _keys(_at(loc[:-1])))}"
    else:
        message = " ".join(_SUBJECT.sub(lambda found: "must" if "should" in found[0] else "", first["msg"]).split())
        text = f"{where}: {message}" if where else message
    return text if len(problems) == 1 else f"{text} (and {len(problems) - 1} more)"


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; known here: {', '.join(known)}" if known else ""


def _at(loc: list[int | str]) -> Any:
    annotation: Any = Config
    for part in loc:
        annotation = _below(annotation, str(part))
    return annotation


def _strip(annotation: Any) -> Any:
    """`annotation` without Annotated and without `| None`."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (Union, types.UnionType):
            annotation = next(arg for arg in get_args(annotation) if arg is not type(None))
        else:
            return annotation


def _keys(annotation: Any) -> list[str]:
    model = _strip(annotation)
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


def _below(annotation: Any, key: str) -> Any:
    """The type of `key` below `annotation`, or None if there is no such key."""
    plain = _strip(annotation)
    if get_origin(plain) in (dict, list):
        return get_args(plain)[-1]
    if isinstance(plain, type) and issubclass(plain, BaseModel) and key in plain.model_fields:
        return plain.model_fields[key].annotation
    return None


def _takes_text(annotation: Any) -> bool:
    plain = _strip(annotation)
    return get_origin(plain) is Literal or (isinstance(plain, type) and issubclass(plain, str))
