"""Host plugins: modules named in `[plugins]`, each of which may export `bind(engine)` (C-05, C-07).

`bind` runs in every front door and worker. A `bind` that raises leaves nothing registered behind.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ledger.config import Config
from ledger.errors import ConfigError
from ledger.identity import canonical_tool, check_tool_name
from ledger.policy import Policy, ResolveHuman, from_config

NativeHandler = Callable[[dict[str, Any], Any], Any]
LEVELS = ("approve", "confirm", "dynamic")


@dataclass(frozen=True, slots=True)
class Plugins:
    """What plugins and configuration together give: the policy, and native handlers by routed name."""

    policy: Policy
    native_tools: Mapping[str, NativeHandler]


class PluginRegistry:
    """What a plugin's `bind(engine)` gets: registration only."""

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self._aliases = aliases
        self.native_tools: dict[str, NativeHandler] = {}
        self.levels: dict[str, str] = {}
        self.mutation_tools: set[str] = set()
        self.human: ResolveHuman | None = None

    def register_mutation_tools(self, tools: Iterable[str]) -> None:
        """Declares tools protected though nobody is asked; changes no approval policy (C-05)."""
        self.mutation_tools.update(canonical_tool(check_tool_name(tool), self._aliases) for tool in tools)

    def register_native_tool(self, name: str, handler: NativeHandler, *, human: str | None = None) -> None:
        """Adds `handler(arguments, ctx)` as the tool `name`, sync or async; `human` is its own level (C-07).

        Raises:
            ValueError: the name is an MCP name or taken by another handler, or the level is unknown.
        """
        check_tool_name(name)
        if name.startswith("mcp__"):
            raise ValueError(f"{name!r} is a name of MCP tools")
        if self.native_tools.get(name, handler) is not handler:
            raise ValueError(f"another handler is registered as {name!r}")
        if human is not None and human not in LEVELS:
            raise ValueError(f"human must be one of {', '.join(LEVELS)} or None")
        self.native_tools[name] = handler
        if human is not None:
            self.levels[name] = human

    def resolve_human(self, resolver: ResolveHuman) -> None:
        """Sets the function that decides `dynamic` levels per call.

        Raises:
            ValueError: another one is set.
        """
        if self.human is not None and self.human is not resolver:
            raise ValueError("another resolve_human is registered")
        self.human = resolver


def load_plugins(config: Config) -> Plugins:
    """Imports and binds the configured modules.

    Raises:
        ConfigError: a module cannot be imported or its `bind` failed; one line naming it.
    """
    registry = PluginRegistry(config.mcp.aliases)
    for name in config.plugins.modules:
        _bind(name, registry)
    policy = from_config(config).extended(
        levels=registry.levels,
        mutation_tools=frozenset(registry.mutation_tools),
        resolve_human=registry.human,
    )
    return Plugins(policy, dict(registry.native_tools))


def _bind(name: str, registry: PluginRegistry) -> None:
    try:
        module = importlib.import_module(name)
        bind = getattr(module, "bind", None)
        if bind is not None:
            bind(registry)
    except Exception as error:
        raise ConfigError(f"plugin {name} cannot be bound: {type(error).__name__}: {error}") from error
