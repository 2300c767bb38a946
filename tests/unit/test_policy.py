"""Which calls are protected, who must agree, and which rule may answer instead."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.config import Config
from ledger.errors import ConfigError
from ledger.policy import Policy, from_config, stricter

CREATE = "mcp__boards__create"
LEVELS = st.sampled_from([None, "approve", "confirm"])


def policy(**tables: Any) -> Policy:
    """The policy of a configuration with one server, `boards`."""
    tools = {
        "create": {"human": "approve"},
        "delete": {"human": "confirm"},
        "move": {"human": "dynamic"},
        "list": {"read_only": True},
        "touch": {},
    }
    servers = {"boards": {"command": ["true"], "tools": tools}}
    aliases = {"make": CREATE, "make_board": "mcp__boards__create"}
    config = {"mcp": {"servers": servers, "aliases": aliases}, **tables}
    return from_config(Config.model_validate(config))


def ruled(when: dict[str, Any], arguments: Any) -> bool:
    """Whether a rule with these conditions answers for these arguments."""
    rules = [{"name": "small", "tool": CREATE, "when": when}]
    return policy(policy={"auto_approve": rules}).resolve(CREATE, arguments).rule == "small"


@pytest.mark.proves("C-05", "C-07")
@pytest.mark.parametrize(
    ("tool", "protected", "level"),
    [
        (CREATE, True, "approve"),
        ("mcp__boards__delete", True, "confirm"),
        ("mcp__boards__list", False, None),
        ("mcp__boards__touch", False, None),
        ("mcp__boards__patch", True, None),
        ("mcp__boards__get", False, None),
        ("native", False, None),
    ],
)
def test_a_human_level_or_a_declaration_protects(tool: str, protected: bool, level: str | None) -> None:
    resolved = policy(policy={"mutation_tools": ["mcp__boards__patch"]}).resolve(tool, {})
    assert (resolved.tool, resolved.protected, resolved.level) == (tool, protected, level)


@pytest.mark.proves("C-05")
def test_declaring_changes_no_level() -> None:
    declared = policy(policy={"mutation_tools": [CREATE, "mcp__boards__touch", "make_board"]})
    assert declared.resolve(CREATE, {}).level == "approve"
    assert declared.resolve("mcp__boards__touch", {}).level is None
    assert declared.mutation_tools == {CREATE, "mcp__boards__touch"}


@pytest.mark.proves("C-03")
def test_an_alias_is_resolved_before_anything_is_looked_up() -> None:
    resolved = policy().resolve("make", {})
    assert (resolved.tool, resolved.protected, resolved.level) == (CREATE, True, "approve")


@pytest.mark.proves("C-07")
def test_a_dynamic_level_is_decided_per_call_and_stays_protected() -> None:
    def by_size(tool: str, arguments: Any) -> str | None:
        assert tool == "mcp__boards__move"
        return {0: None, 1: "approve", 2: "confirm"}.get(arguments["n"], "whatever")

    dynamic = policy().extended(resolve_human=by_size)
    resolved = [dynamic.resolve("mcp__boards__move", {"n": n}) for n in range(3)]
    assert [one.level for one in resolved] == [None, "approve", "confirm"]
    assert {one.protected for one in resolved} == {True}
    with pytest.raises(ConfigError, match="must answer"):
        dynamic.resolve("mcp__boards__move", {"n": 3})
    with pytest.raises(ConfigError, match="no plugin provides"):
        policy().resolve("mcp__boards__move", {"n": 0})


@pytest.mark.proves("C-07")
def test_configuration_overrides_the_tool_s_own_level() -> None:
    extended = policy().extended(levels={CREATE: "confirm", "native": "approve"}, mutation_tools=frozenset({"native2"}))
    assert extended.resolve(CREATE, {}).level == "approve"
    assert extended.resolve("native", {}).level == "approve"
    assert extended.resolve("native2", {}).protected


@pytest.mark.proves("C-06")
@pytest.mark.parametrize(
    ("tool", "warns"),
    [
        (CREATE, False),
        ("mcp__boards__list", False),
        ("mcp__boards__touch", True),
        ("mcp__boards__get_all", True),
        ("mcp__boards__patch", False),
        ("native", False),
    ],
)
def test_only_an_mcp_tool_that_nobody_declared_is_warned_about(tool: str, warns: bool) -> None:
    assert policy(policy={"mutation_tools": ["mcp__boards__patch"]}).warns_about(tool) is warns


@pytest.mark.proves("C-43")
@pytest.mark.parametrize(
    ("when", "arguments", "holds"),
    [
        ({}, {}, True),
        ({"/amount": {"le": 50}}, {"amount": 50}, True),
        ({"/amount": {"le": 50}}, {"amount": 50.5}, False),
        ({"/amount": {"le": 50}}, {"amount": 10**400}, False),
        ({"/amount": {"le": 50}}, {"amount": True}, False),
        ({"/amount": {"le": 50}}, {"amount": "5"}, False),
        ({"/amount": {"le": 50}}, {}, False),
        ({"/amount": {"le": 50}}, {"Amount": 5}, False),
        ({"/amount": {"gt": 0, "lt": 10}}, {"amount": 10}, False),
        ({"/amount": {"ge": 10}}, {"amount": 10}, True),
        ({"/amount": {"gt": 10}}, {"amount": 10}, False),
        ({"/amount": {"eq": 1}}, {"amount": 1.0}, True),
        ({"/amount": {"eq": 1}}, {"amount": True}, False),
        ({"/ok": {"eq": True}}, {"ok": 1}, False),
        ({"/amount": {"ne": 1}}, {"amount": 2}, True),
        ({"/amount": {"ne": 1}}, {}, False),
        ({"/currency": {"in": ["EUR", "USD"]}}, {"currency": "USD"}, True),
        ({"/currency": {"in": ["EUR", "USD"]}}, {"currency": "usd"}, False),
        ({"/flag": {"in": [0]}}, {"flag": False}, False),
        ({"/to": {"matches": "[a-z]+@ours"}}, {"to": "ann@ours"}, True),
        ({"/to": {"matches": "[a-z]+@ours"}}, {"to": "ann@ours.evil"}, False),
        ({"/to": {"matches": "[a-z]+@ours"}}, {"to": "x\nann@ours"}, False),
        ({"/to": {"matches": "[a-z]+@ours"}}, {"to": "ann@ours\n"}, False),
        ({"/to": {"matches": "5"}}, {"to": 5}, False),
        ({"/a/1/b": {"eq": [1, {"c": 2}]}}, {"a": [0, {"b": [1, {"c": 2}]}]}, True),
        ({"/a/1": {"eq": 1}}, {"a": [0, True]}, False),
        ({"/a/01": {"eq": 1}}, {"a": [0, 1]}, False),
        ({"/a/-": {"eq": 1}}, {"a": [0, 1]}, False),
        ({"/a/2": {"eq": 1}}, {"a": [0, 1]}, False),
        ({"/a/b": {"eq": 1}}, {"a": "b"}, False),
        ({"/a~1b/m~0n": {"eq": 1}}, {"a/b": {"m~n": 1}}, True),
        ({"/x": {"eq": {"k": 1}}}, {"x": {"k": True}}, False),
        ({"/x": {"eq": [1]}}, {"x": [True]}, False),
        ({"": {"eq": {"a": 1}}}, {"a": 1}, True),
        ({"/amount": {"le": 50}, "/currency": {"eq": "EUR"}}, {"amount": 5, "currency": "USD"}, False),
    ],
)
def test_a_rule_answers_only_if_every_condition_holds_exactly(when: Any, arguments: Any, holds: bool) -> None:
    assert ruled(when, arguments) is holds


@pytest.mark.proves("C-43", "C-05")
def test_a_rule_s_answer_leaves_the_call_protected_and_gives_no_budget() -> None:
    budget = {"tools": [CREATE], "execution_seconds": 10, "request_ceiling_seconds": 900}
    rules = [{"name": "small", "tool": CREATE, "when": {"/n": {"le": 1}}}]
    both = policy(budget=budget, policy={"auto_approve": rules})
    by_rule, by_person = both.resolve(CREATE, {"n": 1}), both.resolve(CREATE, {"n": 2})
    assert (by_rule.protected, by_rule.level, by_rule.rule, by_rule.budget_eligible) == (
        True,
        "approve",
        "small",
        False,
    )
    assert (by_person.rule, by_person.budget_eligible) == (None, True)
    assert not both.resolve("mcp__boards__delete", {}).budget_eligible


@pytest.mark.proves("C-43")
def test_a_rule_names_an_exact_tool_and_answers_nobody_s_question() -> None:
    rules = [{"name": "r1", "tool": "mcp__boards__touch"}, {"name": "r2", "tool": "mcp__boards__creat"}]
    asked = policy(policy={"auto_approve": rules})
    assert asked.resolve("mcp__boards__touch", {}).rule is None
    assert asked.resolve(CREATE, {}).rule is None


@pytest.mark.proves("C-05")
@given(LEVELS, LEVELS)
def test_the_stricter_of_two_levels_wins(one: str | None, other: str | None) -> None:
    order = [None, "approve", "confirm"]
    assert stricter(one, other) == stricter(other, one) == max(one, other, key=order.index)


@pytest.mark.proves("C-05")
def test_the_digest_is_the_same_for_the_same_policy_and_another_for_any_other() -> None:
    budget = {"tools": [CREATE], "execution_seconds": 10, "request_ceiling_seconds": 900}
    others = [
        policy(policy={"mutation_tools": ["mcp__boards__touch"]}),
        policy(policy={"auto_approve": [{"name": "r", "tool": CREATE}]}),
        policy(policy={"auto_approve": [{"name": "r", "tool": CREATE, "when": {"/n": {"le": 1}}}]}),
        policy(budget=budget),
        policy(budget={**budget, "execution_seconds": 11}),
        policy().extended(levels={"native": "approve"}),
        policy().extended(mutation_tools=frozenset({"native"})),
    ]
    digests = [one.digest for one in [policy(), *others]]
    assert len(set(digests)) == len(digests)
    assert policy().digest == policy().digest == policy().extended().digest
