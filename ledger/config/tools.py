"""`[mcp]` and `[policy]`: which tools there are, and who must agree before one runs."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from ledger.config.values import Count, Flag, Name, Positive, Section, ToolName

HumanLevel = Literal["approve", "confirm", "dynamic"]
OPERATORS = ("eq", "ne", "lt", "le", "gt", "ge", "in", "matches")
_ORDER = ("lt", "le", "gt", "ge")
_POINTER = re.compile(r"\A(/([^~/]|~[01])*)*\Z")
_SERVER = re.compile(r"\A[A-Za-z0-9_.-]{1,64}\Z")


class ToolPolicy(Section):
    """One tool of a server. `human` None asks nobody; `read_only` declares it harmless (C-05, C-06)."""

    human: HumanLevel | None = None
    read_only: Flag = False

    @model_validator(mode="after")
    def _not_both(self) -> Self:
        if self.read_only and self.human is not None:
            raise ValueError("read_only and human exclude each other")
        return self


class McpServerConfig(Section):
    """One MCP server: `command` for stdio or `url` for Streamable HTTP, never both.

    `env` and `headers` values may be `env:NAME`. `reply_read_bytes` bounds what is read of one reply,
    `reply_keep_bytes` what is kept of it in the run's journal.
    """

    command: Annotated[list[str], Field(min_length=1)] | None = None
    url: str | None = None
    env: dict[str, str] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)
    cwd: str | None = None
    concurrency: Count = 64
    reply_read_bytes: Count = 8_388_608
    reply_keep_bytes: Count = 1_048_576
    tools: dict[ToolName, ToolPolicy] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_transport(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("give exactly one of command (stdio) and url (Streamable HTTP)")
        if self.command is not None and self.headers:
            raise ValueError("headers belong to url; a command takes env")
        if self.url is not None and (self.env or self.cwd):
            raise ValueError("env and cwd belong to command; a url takes headers")
        if self.url is not None and urlsplit(self.url).scheme not in ("http", "https"):
            raise ValueError("url must begin with http:// or https://")
        return self


class McpConfig(Section):
    """`[mcp]`: servers by name, and short names for canonical tools."""

    servers: dict[str, McpServerConfig] = Field(default_factory=dict)
    aliases: dict[ToolName, ToolName] = Field(default_factory=dict)

    @field_validator("servers")
    @classmethod
    def _names_split_one_way(cls, servers: dict[str, McpServerConfig]) -> dict[str, McpServerConfig]:
        for name in servers:
            if not _SERVER.match(name):
                raise ValueError(f"server name {name[:64]!r} must be 1-64 of A-Z a-z 0-9 _ . -")
            # mcp__a__b__c must belong to one server only.
            longer = next((other for other in servers if other.startswith(f"{name}__")), None)
            if longer is not None:
                raise ValueError(f"server names {name!r} and {longer!r} make tool names that read both ways")
        return servers

    @field_validator("aliases")
    @classmethod
    def _canonical_targets(cls, aliases: dict[str, str]) -> dict[str, str]:
        for alias, target in aliases.items():
            if not re.match(r"\Amcp__.+?__.+\Z", target):
                raise ValueError(f"alias {alias!r} must name a canonical tool, mcp__<server>__<tool>")
        return aliases


class AutoApproveRule(Section):
    """A rule that answers in place of a person (C-43): an exact tool and conditions that must all hold.

    `when` maps JSON Pointers into the arguments to `{operator: value}`.
    """

    name: Name
    tool: ToolName
    when: dict[str, dict[str, Any]] = Field(default_factory=dict)

    @field_validator("when")
    @classmethod
    def _known_conditions(cls, when: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for pointer, conditions in when.items():
            if not _POINTER.match(pointer):
                raise ValueError(f"{pointer[:64]!r} is not a JSON Pointer (it begins with /)")
            if not conditions:
                raise ValueError(f"{pointer!r} has no condition; use one of {', '.join(OPERATORS)}")
            for operator, value in conditions.items():
                _check_condition(pointer, operator, value)
        return when


class PolicyConfig(Section):
    """`[policy]`: protection and approval (C-05, C-42, C-43)."""

    mutation_tools: list[ToolName] = Field(default_factory=list)
    approval_timeout_seconds: Positive = 300
    requester_may_approve: Flag = False
    auto_approve: list[AutoApproveRule] = Field(default_factory=list)

    @field_validator("auto_approve")
    @classmethod
    def _distinct_names(cls, rules: list[AutoApproveRule]) -> list[AutoApproveRule]:
        names = [rule.name for rule in rules]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two rules are named {twice!r}")
        return rules


def _check_condition(pointer: str, operator: str, value: object) -> None:
    if operator not in OPERATORS:
        raise ValueError(f"{operator[:64]!r} at {pointer!r} is not an operator; use one of {', '.join(OPERATORS)}")
    if operator in _ORDER and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError(f"{operator} at {pointer!r} compares with a number")
    if operator == "in" and not (isinstance(value, list) and value):
        raise ValueError(f"in at {pointer!r} takes a list of at least one value")
    if operator == "matches":
        _check_pattern(pointer, value)
    if not _is_json(value):
        raise ValueError(f"{operator} at {pointer!r} compares with a value that JSON does not have")


def _check_pattern(pointer: str, value: object) -> None:
    if not isinstance(value, str):
        raise ValueError(f"matches at {pointer!r} takes a regular expression")  # noqa: TRY004  pydantic wants ValueError
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"matches at {pointer!r} is not a regular expression: {error.msg}") from None


def _is_json(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list):
        return all(_is_json(item) for item in value)
    if isinstance(value, dict):
        return all(_is_json(item) for item in value.values())
    return isinstance(value, str | int | bool)
