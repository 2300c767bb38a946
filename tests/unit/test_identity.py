"""Digests and names (C-01, C-03, C-04, C-60, C-64). The digests are golden: no release may change one."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import ConfigError, InvalidRequest
from ledger.identity import (
    canonical_tool,
    check_delivery_id,
    check_logical_turn_id,
    check_session_id,
    check_tool_name,
    content_digest,
    delivery_identity,
    mutation_identity,
    mutation_identity_of,
    same_arguments,
    session_hash,
)
from ledger.strict_json import canonical, check_arguments, loads

GOLDEN = [
    ('{"n":1}', "0bb2a644266665ef"),
    ('{"n":1.0}', "17bc3d5946ace8ca"),
    ('{"n":true}', "e90ef0e8db67912a"),
    ('{"n":"1"}', "c950644c20978967"),
    ('{"n":0}', "d6254ae082199d59"),
    ('{"n":0.0}', "f0616de896133c6d"),
    ('{"n":-0.0}', "14c684cd6f49cc2a"),
    ('{"a":[3,2],"b":1}', "444826174b82a333"),
    ('{"b":1,"a":[3,2]}', "444826174b82a333"),
    ('{ "b" : 1,\n"\\u0061" : [3, 2] }', "444826174b82a333"),
    ('{"account":18446744073709551616}', "8053a9d8fb1decab"),
    ('{"account":18446744073709551617}', "8cedf35088b03587"),
    ('{"n":9007199254740992}', "db1b77f83c2713e8"),
    ('{"n":9007199254740993}', "35b861faa22b2635"),
    ('{"to":"caf\u00e9"}', "23cce9cc9faeadff"),
    ('{"to":"caf\\u00e9"}', "23cce9cc9faeadff"),
    ('{"to":"cafe\u0301"}', "ff24b29302ef512b"),
    ('{"n":1e-7}', "19081feff0aa820a"),
]

# Rare spellings with the exact text that is hashed: escapes, exponents, order of keys by code point.
WRITTEN_OUT = [
    ('{"n":1e-7}', r'["pay",{"n":1e-07}]'),
    ('{"n":0.00001}', r'["pay",{"n":1e-05}]'),
    ('{"to":"café"}', r'["pay",{"to":"caf\u00e9"}]'),
    (r'{"\ud800\udf48":1,"\uf900":2}', r'["pay",{"\uf900":2,"\ud800\udf48":1}]'),
    (r'{"s":"\u2028\u007f</script>"}', r'["pay",{"s":"\u2028\u007f</script>"}]'),
    ('{"b":1,"a":{"d":1,"c":2}}', r'["pay",{"a":{"c":2,"d":1},"b":1}]'),
    ('{"n":-9223372036854775809}', r'["pay",{"n":-9223372036854775809}]'),
]

KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | KEYS
OBJECTS = st.dictionaries(KEYS, LEAVES | st.lists(LEAVES, max_size=3), max_size=6)


@pytest.mark.proves("C-01")
@pytest.mark.parametrize(("text", "digest"), GOLDEN)
def test_golden_digests(text: str, digest: str) -> None:
    assert mutation_identity("pay", loads(text.encode()))[:16] == digest


@pytest.mark.proves("C-01")
@pytest.mark.parametrize(("text", "hashed"), WRITTEN_OUT)
def test_the_hashed_bytes_are_written_down(text: str, hashed: str) -> None:
    expected = hashlib.sha256(hashed.encode("ascii")).hexdigest()
    assert mutation_identity("pay", loads(text.encode())) == expected


@pytest.mark.proves("C-01")
def test_values_that_python_calls_equal_are_different_mutations() -> None:
    values: list[Any] = [1, 1.0, True, "1", 0, 0.0, -0.0, False, None, "caf\u00e9", "cafe\u0301"]
    assert len({mutation_identity("pay", {"n": value}) for value in values}) == len(values)


@pytest.mark.proves("C-01")
@settings(deadline=None)
@given(OBJECTS, st.randoms(use_true_random=False))
def test_key_order_never_matters(arguments: dict[str, Any], order: random.Random) -> None:
    items = list(arguments.items())
    order.shuffle(items)
    assert mutation_identity("pay", dict(items)) == mutation_identity("pay", arguments)


@pytest.mark.proves("C-01")
@settings(deadline=None)
@given(OBJECTS, OBJECTS)
def test_identities_are_equal_exactly_when_the_canonical_texts_are(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert (mutation_identity("pay", a) == mutation_identity("pay", b)) == (canonical(a) == canonical(b))


@pytest.mark.proves("C-01")
@settings(deadline=None)
@given(st.integers(min_value=-(10**400), max_value=10**400))
def test_integers_of_any_size_stay_exact(number: int) -> None:
    identity = mutation_identity("pay", loads(b'{"n":%d}' % number))
    assert identity == hashlib.sha256(b'["pay",{"n":%d}]' % number).hexdigest()
    assert identity != mutation_identity("pay", {"n": number + 1})
    assert identity != mutation_identity("pay", {"n": str(number)})


@pytest.mark.proves("C-01")
@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), OBJECTS)
def test_an_identity_from_canonical_text_is_the_same(tool: str, arguments: dict[str, Any]) -> None:
    assert mutation_identity_of(tool, check_arguments(arguments)) == mutation_identity(tool, arguments)


@pytest.mark.proves("C-01")
def test_nan_has_no_identity() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        mutation_identity("pay", {"n": float("nan")})


@pytest.mark.proves("C-03")
def test_the_identity_holds_the_canonical_tool_name() -> None:
    aliases = {"create_dashboard": "mcp__dashboards__create", "make": "create_dashboard"}
    assert canonical_tool("create_dashboard", aliases) == "mcp__dashboards__create"
    assert canonical_tool("make", aliases) == "mcp__dashboards__create"
    assert canonical_tool("mcp__dashboards__create", aliases) == "mcp__dashboards__create"
    assert canonical_tool("refund", aliases) == "refund"
    assert canonical_tool("same", {"same": "same"}) == "same"
    with pytest.raises(ConfigError, match="circle"):
        canonical_tool("a", {"a": "b", "b": "c", "c": "a"})


@pytest.mark.proves("C-04")
def test_prepared_arguments_must_equal_the_approved_ones_exactly() -> None:
    approved = check_arguments({"n": 1, "to": "café", "list": [1, 2]})
    assert same_arguments(approved, {"list": [1, 2], "to": "caf\u00e9", "n": 1})
    others: list[object] = [
        {"n": 1.0, "to": "café", "list": [1, 2]},
        {"n": True, "to": "café", "list": [1, 2]},
        {"n": 1, "to": "cafe\u0301", "list": [1, 2]},
        {"n": 1, "to": "café", "list": [2, 1]},
        {"n": 1, "to": "café"},
        {"n": 1, "to": "café", "list": [1, 2], "extra": None},
        {"n": 1, "to": "café", "list": (1, 2)},
        {"n": float("nan")},
        {"n": "\ud800"},
        [],
        None,
        approved,
    ]
    for prepared in others:
        assert not same_arguments(approved, prepared)


@pytest.mark.proves("C-04")
def test_an_approval_that_is_not_canonical_text_matches_nothing() -> None:
    for approved in ('{"n": 1}', '{"to":"café"}', '{"n":"\ud800"}', ""):
        assert not same_arguments(approved, {"n": 1})


@pytest.mark.proves("C-60")
def test_a_delivery_is_named_by_all_five_parts() -> None:
    parts = ["acme", "incident-42", "ops", "dana", "msg-1017"]
    identity = delivery_identity(*parts)
    text = '["acme","incident-42","ops","dana","msg-1017"]'
    assert identity == hashlib.sha256(text.encode()).hexdigest()
    for index in range(5):
        other = parts.copy()
        other[index] += "x"
        assert delivery_identity(*other) != identity
    assert delivery_identity("acme", "a", "b", "c", "d") != delivery_identity("acme", "a", "b,c", "", "d")


def test_a_session_is_16_bytes_of_tenant_and_id() -> None:
    expected = hashlib.sha256(b'["acme","incident-42"]').hexdigest()[:32]
    assert session_hash("acme", "incident-42") == expected
    assert session_hash("acm", "eincident-42") != expected


@pytest.mark.proves("C-60")
def test_the_content_of_a_delivery_is_compared_canonically() -> None:
    request = {"calls": [{"tool": "pay", "arguments": {"amount": 1, "to": "x"}}], "on_error": "stop"}
    digest = content_digest(request)
    same = json.loads('{"on_error":"stop","calls":[{"arguments":{"to":"x","amount":1},"tool":"pay"}]}')
    assert content_digest(same) == digest
    assert content_digest({**request, "handler": None, "deadline_seconds": 5, "wait": 60}) == digest
    changes: list[dict[str, Any]] = [
        {"calls": [{"tool": "pay", "arguments": {"amount": 2, "to": "x"}}]},
        {"calls": [{"tool": "pay", "arguments": {"amount": 1.0, "to": "x"}}]},
        {"handler": "triage"},
        {"text": "again"},
        {"input": {}},
        {"on_error": "continue"},
        {"logical_turn_id": "t1"},
    ]
    for change in changes:
        assert content_digest({**request, **change}) != digest


@pytest.mark.proves("C-64")
@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (
            check_session_id,
            ["a", "A-z0._9:@/-", "x" * 128],
            ["", "x" * 129, "a b", "a\n", "é", "a*", "\x00", None, 7, True, b"a", ["a"]],
        ),
        (
            check_tool_name,
            ["pay", "mcp__dash-boards__create", "a.b:c/d@e", "t" * 200],
            ["", "t" * 201, "a b", "pay\n", "pä", 'a"b', "a\\b", None, 7, b"pay"],
        ),
        (
            check_delivery_id,
            ["m", "1700000000.000100", "é" * 128, "\U0001f600" * 128, " "],
            ["", "m" * 129, "\ud800", None, 7, 1.5, True, b"m", {}],
        ),
        (check_logical_turn_id, ["07ab", "x" * 128], ["", "x" * 129, "\udfff", None, 0]),
    ],
)
def test_names_have_their_characters_and_lengths(
    check: Callable[[object], str], good: list[str], bad: list[object]
) -> None:
    for value in good:
        assert check(value) == value
    for wrong in bad:
        with pytest.raises(InvalidRequest) as caught:
            check(wrong)
        assert caught.value.code == "invalid_request"
