"""Tools that hosts declared in the store, known to a process by a version a shard (C-05).

A host adds to every shard's set; whoever admits or begins there under another version is refused `policy_stale` before
anything is written, reads the set, and goes on. So a declaration holds everywhere at once, and costs nobody a look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ledger.policy import Policy
from ledger.store.call import ScriptCall
from ledger.store.codec import pack


@dataclass(frozen=True, slots=True)
class DeclaredTools:
    """A shard's declared tools, canonical, and their version."""

    version: int
    tools: frozenset[str]


def declare_tools(shard: int, tools: Sequence[str]) -> ScriptCall[DeclaredTools]:
    """Adds canonical tool names to a shard's set; they are never taken out again."""

    def decode(reply: list[Any]) -> DeclaredTools:
        return DeclaredTools(reply[1], frozenset(tool.decode() for tool in reply[2]))

    return ScriptCall.of("declare_tools", shard, pack(list(tools)), decode=decode, told=False)


def read_declared(shard: int) -> ScriptCall[DeclaredTools]:
    """A shard's set as it is."""
    return declare_tools(shard, ())


@dataclass(slots=True)
class LivePolicy:
    """A process's policy together with what it knows to be declared. `base` is what configuration and plugins gave."""

    base: Policy
    policy: Policy = field(init=False)
    versions: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.policy = self.base

    def version(self, shard: int) -> int:
        """The version of a shard's set that `policy` holds."""
        return self.versions.get(shard, 0)

    def adopt(self, shard: int, found: DeclaredTools) -> None:
        """Takes over a shard's set; what another shard declared stays, so that `policy` only grows stricter."""
        self.versions[shard] = found.version
        if not found.tools <= self.policy.mutation_tools:
            self.policy = self.policy.extended(mutation_tools=found.tools)
