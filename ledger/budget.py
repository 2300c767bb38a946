"""The execution allowance that a fresh human approval grants: its rules, and how it is registered once (C-52). Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ledger.config.load import CANCEL_RESERVE_SECONDS
from ledger.identity import canonical_tool, check_tool_name

_LONGEST_SECONDS = 1e9


@dataclass(frozen=True, slots=True)
class ApprovedMutationBudget:
    """`tools` (MCP names, aliases allowed) may run `execution_seconds` once a person has approved the exact call.

    `request_ceiling_seconds` bounds the whole request, human waiting included. Raises ValueError unless both are
    positive finite numbers and there is at least one tool.
    """

    tools: frozenset[str]
    execution_seconds: float
    request_ceiling_seconds: float

    def __post_init__(self) -> None:
        if isinstance(self.tools, str) or not self.tools:
            raise ValueError("tools must be a set of at least one tool name")
        # One spelling a number, so that the same policy again is the same.
        object.__setattr__(self, "tools", frozenset(check_tool_name(tool) for tool in self.tools))
        for name in ("execution_seconds", "request_ceiling_seconds"):
            object.__setattr__(self, name, _seconds(name, getattr(self, name)))

    def resolved(self, aliases: Mapping[str, str]) -> ApprovedMutationBudget:
        """The same budget for canonical names (C-03)."""
        return replace(self, tools=frozenset(canonical_tool(tool, aliases) for tool in self.tools))

    def selects(self, tool: str) -> bool:
        """Whether the canonical `tool` is an MCP tool of this budget; native tools never are."""
        return tool.startswith("mcp__") and tool in self.tools

    @property
    def execution_ms(self) -> int:
        """The allowance in ms."""
        return _milliseconds(self.execution_seconds)

    @property
    def ceiling_ms(self) -> int:
        """The ceiling in ms."""
        return _milliseconds(self.request_ceiling_seconds)

    @property
    def described(self) -> dict[str, object]:
        """Its content as JSON values, the same in every process."""
        return {
            "tools": sorted(self.tools),
            "execution_seconds": self.execution_seconds,
            "request_ceiling_seconds": self.request_ceiling_seconds,
        }


def registered_budget(
    known: ApprovedMutationBudget | None,
    asked: ApprovedMutationBudget,
    *,
    aliases: Mapping[str, str],
    wrap_up_seconds: float,
) -> ApprovedMutationBudget:
    """What is registered after `asked`: the first one stays, the same again is fine (C-52).

    Raises:
        ValueError: another budget is registered, or the ceiling leaves no room for wrap-up and cancellation.
    """
    made = asked.resolved(aliases)
    reserve = wrap_up_seconds + CANCEL_RESERVE_SECONDS
    if made.request_ceiling_seconds <= reserve:
        raise ValueError(f"request_ceiling_seconds must exceed the wrap-up allowance + 5 s = {reserve:g} s")
    if known is not None and known != made:
        raise ValueError("another approved mutation budget is registered")
    return made


def _seconds(name: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:
            seconds = math.inf
        if math.isfinite(seconds) and seconds > 0:
            return seconds
    raise ValueError(f"{name} must be a positive finite number")


def _milliseconds(seconds: float) -> int:
    """At least one, and few enough for the store's integers."""
    return max(1, int(min(seconds, _LONGEST_SECONDS) * 1000))
