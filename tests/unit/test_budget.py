"""ApprovedMutationBudget: what it accepts, and that it is registered once (C-52)."""

from __future__ import annotations

import math
import sys
import types
from typing import Any

import pytest

from ledger.budget import ApprovedMutationBudget
from ledger.config import Config
from ledger.errors import ConfigError, InvalidRequest
from ledger.plugins import PluginRegistry, load_plugins

CREATE = "mcp__inventory__create_item"


def budget(execution: Any = 120, ceiling: Any = 900, *tools: str) -> ApprovedMutationBudget:
    return ApprovedMutationBudget(frozenset(tools or (CREATE,)), execution, ceiling)


@pytest.mark.proves("C-52")
@pytest.mark.parametrize("bad", [True, False, 0, -1, math.nan, math.inf, -math.inf, "120", None, 10**400])
def test_durations_are_positive_finite_numbers(bad: Any) -> None:
    with pytest.raises(ValueError, match="execution_seconds must be a positive finite number"):
        budget(bad)
    with pytest.raises(ValueError, match="request_ceiling_seconds must be a positive finite number"):
        budget(120, bad)


def test_tools_are_named() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ApprovedMutationBudget(frozenset(), 120, 900)
    with pytest.raises(ValueError, match="set"):
        ApprovedMutationBudget(CREATE, 120, 900)  # type: ignore[arg-type]  # what a host might pass
    with pytest.raises(InvalidRequest):
        budget(120, 900, "not a name")


@pytest.mark.proves("C-52")
def test_it_selects_exact_canonical_mcp_tools_only() -> None:
    made = budget(120, 900, "create", "pay", CREATE).resolved({"create": "mcp__boards__create"})
    assert made.selects("mcp__boards__create")
    assert made.selects(CREATE)
    assert not made.selects("create")
    assert not made.selects("pay")
    assert not made.selects(CREATE + "s")
    assert (made.execution_ms, made.ceiling_ms) == (120_000, 900_000)
    assert (budget(0.0001, 1e300).execution_ms, budget(0.0001, 1e300).ceiling_ms) == (1, 10**12)


@pytest.mark.proves("C-52")
def test_the_same_again_is_fine_and_another_is_refused() -> None:
    registry = PluginRegistry({"create": CREATE})
    registry.register_approved_mutation_budget(budget(120, 900))
    registry.register_approved_mutation_budget(budget(120.0, 900.0, "create"))
    for other in (budget(121, 900), budget(120, 901), budget(120, 900, CREATE, "mcp__a__b")):
        with pytest.raises(ValueError, match="another"):
            registry.register_approved_mutation_budget(other)
    assert registry.registered.budget == budget(120, 900)


@pytest.mark.proves("C-52")
@pytest.mark.parametrize(("ceiling", "fits"), [(25, False), (25.001, True), (12, False)])
def test_the_ceiling_exceeds_wrap_up_and_drain(ceiling: float, fits: bool) -> None:
    registry = PluginRegistry({}, wrap_up_seconds=20)
    if fits:
        registry.register_approved_mutation_budget(budget(1, ceiling))
    else:
        with pytest.raises(ValueError, match=r"wrap-up allowance \+ 5 s = 25 s"):
            registry.register_approved_mutation_budget(budget(1, ceiling))


@pytest.mark.proves("C-52")
def test_a_bind_that_fails_takes_everything_back() -> None:
    registry = PluginRegistry({})
    registry.register_mutation_tools(["kept"])

    def bind(engine: PluginRegistry) -> None:
        engine.register_approved_mutation_budget(budget())
        engine.register_mutation_tools(["gone"])
        engine.register_native_tool("gone", print, human="confirm")
        engine.register_turn_handler("gone", print)
        engine.resolve_human(lambda _tool, _arguments: "confirm")
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        registry.bind(bind)
    found = registry.registered
    assert (found.budget, found.mutation_tools, found.human) == (None, {"kept"}, None)
    assert (found.native_tools, found.turn_handlers, found.levels) == ({}, {}, {})
    registry.register_approved_mutation_budget(budget(1, 100))


@pytest.mark.proves("C-52")
def test_no_plugin_contradicts_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("budget_plugin")
    module.bind = lambda engine: engine.register_approved_mutation_budget(budget(60))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "budget_plugin", module)
    plugins = {"plugins": {"modules": ["budget_plugin"]}}
    alone = load_plugins(Config.model_validate(plugins)).policy
    assert alone.budget == budget(60)
    same = {"tools": [CREATE], "execution_seconds": 60, "request_ceiling_seconds": 900}
    assert load_plugins(Config.model_validate(plugins | {"budget": same})).policy.digest == alone.digest
    with pytest.raises(ConfigError, match="another approved mutation budget is registered"):
        load_plugins(Config.model_validate(plugins | {"budget": same | {"execution_seconds": 61}}))
