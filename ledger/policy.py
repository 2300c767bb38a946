"""Which calls are protected, who must agree, and which rule may answer instead (C-05, C-07, C-43). Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ledger.budget import ApprovedMutationBudget
from ledger.config import AutoApproveRule, Config
from ledger.errors import ConfigError
from ledger.identity import canonical_tool
from ledger.strict_json import canonical

ResolveHuman = Callable[[str, Mapping[str, Any]], str | None]
"""A host's answer for a `dynamic` tool: `approve`, `confirm` or None for this call's arguments."""

_STRICTNESS = {None: 0, "approve": 1, "confirm": 2}


@dataclass(frozen=True, slots=True)
class Resolution:
    """How one call is to be treated. `rule` names the auto-approval rule that answers in place of a person."""

    tool: str
    protected: bool
    level: str | None
    rule: str | None
    budget_eligible: bool


@dataclass(frozen=True, slots=True)
class Policy:
    """The resolved policy of one process.

    `description` is everything that decides about calls, as canonical JSON, and `digest` stands for it: both are the
    same in every process with the same configuration and plugins (C-05).
    """

    levels: Mapping[str, str]
    mutation_tools: frozenset[str]
    read_only: frozenset[str]
    aliases: Mapping[str, str]
    rules: tuple[AutoApproveRule, ...] = ()
    budget: ApprovedMutationBudget | None = None
    resolve_human: ResolveHuman | None = field(default=None, compare=False)
    description: str = field(default="", init=False)
    digest: str = field(default="", init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "description", _description(self))
        object.__setattr__(self, "digest", hashlib.sha256(self.description.encode()).hexdigest()[:16])

    def resolve(self, tool: str, arguments: Mapping[str, Any]) -> Resolution:
        """Resolves one call. Declaring a mutation tool protects it and changes no level; a rule still protects.

        Raises:
            ConfigError: the tool is `dynamic` and no plugin answers, or it answers something unknown.
        """
        name = canonical_tool(tool, self.aliases)
        level = self._level(name, arguments)
        rule = next((r.name for r in self.rules if level and r.tool == name and _holds(r, arguments)), None)
        eligible = self.budget is not None and self.budget.selects(name)
        return Resolution(
            tool=name,
            protected=level is not None or name in self.levels or name in self.mutation_tools,
            level=level,
            rule=rule,
            budget_eligible=eligible and rule is None,
        )

    def _level(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        level = self.levels.get(name)
        if level != "dynamic":
            return level
        if self.resolve_human is None:
            raise ConfigError(f"{name} is `dynamic`, but no plugin provides resolve_human")
        answer = self.resolve_human(name, arguments)
        if answer not in _STRICTNESS:
            raise ConfigError(f"resolve_human must answer approve, confirm or None for {name}")
        return answer

    def warns_about(self, name: str) -> bool:
        """Whether a call deserves the one warning of C-06: an MCP tool neither protected nor declared read-only."""
        known = name in self.levels or name in self.mutation_tools or name in self.read_only
        return name.startswith("mcp__") and not known

    def extended(
        self,
        *,
        levels: Mapping[str, str] | None = None,
        mutation_tools: frozenset[str] = frozenset(),
        resolve_human: ResolveHuman | None = None,
        budget: ApprovedMutationBudget | None = None,
    ) -> Policy:
        """This policy with what plugins add; levels already configured stay (C-07)."""
        return replace(
            self,
            levels={**(levels or {}), **self.levels},
            mutation_tools=self.mutation_tools | mutation_tools,
            resolve_human=resolve_human or self.resolve_human,
            budget=budget or self.budget,
        )


def stricter(one: str | None, other: str | None) -> str | None:
    """The stricter of two levels: confirm over approve over nobody (C-05)."""
    return one if _STRICTNESS[one] >= _STRICTNESS[other] else other


def from_config(config: Config) -> Policy:
    """The policy that a configuration file alone gives."""
    levels, read_only = {}, set()
    for server, settings in config.mcp.servers.items():
        for tool, policy in settings.tools.items():
            name = f"mcp__{server}__{tool}"
            if policy.human is not None:
                levels[name] = policy.human
            if policy.read_only:
                read_only.add(name)
    aliases = config.mcp.aliases
    return Policy(
        levels=levels,
        mutation_tools=frozenset(canonical_tool(tool, aliases) for tool in config.policy.mutation_tools),
        read_only=frozenset(read_only),
        aliases=aliases,
        rules=tuple(config.policy.auto_approve),
        budget=_budget(config),
    )


def _budget(config: Config) -> ApprovedMutationBudget | None:
    asked = config.budget
    if asked is None:
        return None
    made = ApprovedMutationBudget(frozenset(asked.tools), asked.execution_seconds, asked.request_ceiling_seconds)
    return made.resolved(config.mcp.aliases)


def _description(policy: Policy) -> str:
    return canonical(
        {
            "levels": dict(policy.levels),
            "mutation_tools": sorted(policy.mutation_tools),
            "aliases": dict(policy.aliases),
            "auto_approve": {rule.name: rule.model_dump(mode="json") for rule in policy.rules},
            "budget": policy.budget.described if policy.budget else None,
        }
    )


def _holds(rule: AutoApproveRule, arguments: Mapping[str, Any]) -> bool:
    return all(
        _compare(operator, _pointed(arguments, pointer), wanted)
        for pointer, conditions in rule.when.items()
        for operator, wanted in conditions.items()
    )


_MISSING = object()


def _pointed(arguments: object, pointer: str) -> object:
    """The value a JSON Pointer names, or a marker that no condition holds for."""
    value = arguments
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping):
            value = value.get(key, _MISSING)
        elif isinstance(value, list) and re.fullmatch(r"0|[1-9]\d{0,5}", key) and int(key) < len(value):
            value = value[int(key)]
        else:
            return _MISSING
    return value


def _compare(operator: str, value: object, wanted: Any) -> bool:
    """One condition. JSON types never mix: true is not 1, a string is not a number; a missing value holds nothing."""
    if value is _MISSING:
        return False
    match operator:
        case "eq":
            return _same(value, wanted)
        case "ne":
            return not _same(value, wanted)
        case "in":
            return any(_same(value, one) for one in wanted)
        case "matches":
            return isinstance(value, str) and re.fullmatch(wanted, value) is not None
        case _:
            return _ordered(operator, value, wanted)


def _ordered(operator: str, value: object, wanted: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    answers = {"lt": value < wanted, "le": value <= wanted, "gt": value > wanted, "ge": value >= wanted}
    return answers[operator]


def _same(one: object, other: object) -> bool:
    """JSON equality: numbers by value, but a boolean is never a number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return (
        type(one) is type(other) or (isinstance(one, int | float) and isinstance(other, int | float))
        if one == other
        else False
    )
