"""Host plugins: modules named in `[plugins]`, each of which may export `bind(engine)` (C-05, C-07).

`bind` runs in every front door and worker. A `bind` that raises leaves nothing registered behind.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger.budget import ApprovedMutationBudget, registered_budget
from ledger.config import Config
from ledger.errors import ConfigError
from ledger.identity import canonical_tool, check_tool_name
from ledger.policy import Policy, ResolveHuman, from_config
from ledger.readbacks import ReadbackHandler

NativeHandler = Callable[[dict[str, Any], Any], Any]
TurnFunction = Callable[[Any], Any]
LEVELS = ("approve", "confirm", "dynamic")


@dataclass(frozen=True, slots=True)
class TurnHandler:
    """A registered turn handler: `function(context)`, sync or async.

    `replayable`: its calls are a function of its input and of recorded answers, so it may be run again (C-33).
    """

    function: TurnFunction
    replayable: bool = False

    @property
    def asynchronous(self) -> bool:
        """Whether it runs in the worker's loop; otherwise in a thread of its own."""
        call = getattr(self.function, "__call__", None)  # noqa: B004  # not whether: what calling it runs
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(call)


@dataclass(frozen=True, slots=True)
class Plugins:
    """What plugins and configuration give: the policy, and native handlers, turn handlers and readbacks by name."""

    policy: Policy
    native_tools: Mapping[str, NativeHandler]
    turn_handlers: Mapping[str, TurnHandler] = field(default_factory=dict)
    readbacks: Mapping[str, ReadbackHandler] = field(default_factory=dict)


@dataclass(slots=True)
class Registered:
    """What plugins have registered so far."""

    native_tools: dict[str, NativeHandler] = field(default_factory=dict)
    turn_handlers: dict[str, TurnHandler] = field(default_factory=dict)
    readbacks: dict[str, ReadbackHandler] = field(default_factory=dict)
    levels: dict[str, str] = field(default_factory=dict)
    mutation_tools: set[str] = field(default_factory=set)
    human: ResolveHuman | None = None
    budget: ApprovedMutationBudget | None = None

    def copy(self) -> Registered:
        """As it is now, whatever is registered later."""
        return Registered(
            dict(self.native_tools),
            dict(self.turn_handlers),
            dict(self.readbacks),
            dict(self.levels),
            set(self.mutation_tools),
            self.human,
            self.budget,
        )


class PluginRegistry:
    """What a plugin's `bind(engine)` gets: registration only."""

    def __init__(
        self, aliases: Mapping[str, str], *, wrap_up_seconds: float = 20, budget: ApprovedMutationBudget | None = None
    ) -> None:
        """`budget` is that of the configuration file, which no plugin may contradict."""
        self._aliases = aliases
        self._wrap_up_seconds = wrap_up_seconds
        self.registered = Registered(budget=budget)

    def bind(self, bind: Callable[[PluginRegistry], object]) -> None:
        """Runs a plugin's `bind`; if it raises, nothing of what it registered stays. Raises what it raised."""
        before = self.registered.copy()
        try:
            bind(self)
        except BaseException:
            self.registered = before
            raise

    def register_approved_mutation_budget(self, budget: ApprovedMutationBudget) -> None:
        """Grants selected tools a fresh allowance after a person approved the call; the same again is fine (C-52).

        Raises:
            ValueError: another one is registered, or its ceiling leaves no room for wrap-up and cancellation.
        """
        self.registered.budget = registered_budget(
            self.registered.budget, budget, aliases=self._aliases, wrap_up_seconds=self._wrap_up_seconds
        )

    def register_mutation_tools(self, tools: Iterable[str]) -> None:
        """Declares tools protected though nobody is asked; changes no approval policy (C-05)."""
        self.registered.mutation_tools.update(canonical_tool(check_tool_name(tool), self._aliases) for tool in tools)

    def register_native_tool(self, name: str, handler: NativeHandler, *, human: str | None = None) -> None:
        """Adds `handler(arguments, ctx)` as the tool `name`, sync or async; `human` is its own level (C-07).

        Raises:
            ValueError: the name is an MCP name or taken by another handler, or the level is unknown.
        """
        check_tool_name(name)
        if name.startswith("mcp__"):
            raise ValueError(f"{name!r} is a name of MCP tools")
        if self.registered.native_tools.get(name, handler) is not handler:
            raise ValueError(f"another handler is registered as {name!r}")
        if human is not None and human not in LEVELS:
            raise ValueError(f"human must be one of {', '.join(LEVELS)} or None")
        self.registered.native_tools[name] = handler
        if human is not None:
            self.registered.levels[name] = human

    def register_turn_handler(self, name: str, function: TurnFunction, *, replayable: bool = False) -> None:
        """Adds `function(context)`, sync or async, as the handler that deliveries name in `handler`.

        Declare it `replayable` only if its calls are a function of its input and of recorded answers: then an owner
        change runs it again, also after it changed something, and earlier calls are answered from the record (C-33).

        Raises:
            ValueError: the name is taken by another handler, or by this one declared otherwise.
        """
        check_tool_name(name)
        made = TurnHandler(function, replayable)
        if self.registered.turn_handlers.get(name, made) != made:
            raise ValueError(f"another turn handler is registered as {name!r}")
        self.registered.turn_handlers[name] = made

    def readback(self, tool: str, handler: ReadbackHandler) -> None:
        """Adds `handler(request)`, sync or async, which can look up what an unknown call of `tool` came to (C-91).

        Workers ask it once the attempt can no longer be running, and again later while it cannot tell. Aliases are
        resolved.

        Raises:
            ValueError: another handler is registered for the tool.
        """
        name = canonical_tool(check_tool_name(tool), self._aliases)
        if self.registered.readbacks.get(name, handler) is not handler:
            raise ValueError(f"another readback is registered for {name!r}")
        self.registered.readbacks[name] = handler

    def resolve_human(self, resolver: ResolveHuman) -> None:
        """Sets the function that decides `dynamic` levels per call.

        Raises:
            ValueError: another one is set.
        """
        if self.registered.human is not None and self.registered.human is not resolver:
            raise ValueError("another resolve_human is registered")
        self.registered.human = resolver


def load_plugins(config: Config) -> Plugins:
    """Imports and binds the configured modules.

    Raises:
        ConfigError: a module cannot be imported or its `bind` failed; one line naming it.
    """
    policy = from_config(config)
    registry = PluginRegistry(config.mcp.aliases, wrap_up_seconds=config.timing.wrap_up_seconds, budget=policy.budget)
    for name in config.plugins.modules:
        _bind(name, registry)
    found = registry.registered
    policy = policy.extended(
        levels=found.levels,
        mutation_tools=frozenset(found.mutation_tools),
        resolve_human=found.human,
        budget=found.budget,
    )
    return Plugins(policy, dict(found.native_tools), dict(found.turn_handlers), dict(found.readbacks))


def _bind(name: str, registry: PluginRegistry) -> None:
    try:
        module = importlib.import_module(name)
        bind = getattr(module, "bind", None)
        if bind is not None:
            registry.bind(bind)
    except Exception as error:
        raise ConfigError(f"plugin {name} cannot be bound: {type(error).__name__}: {error}") from error
