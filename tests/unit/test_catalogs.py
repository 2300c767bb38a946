"""What a process makes of the tools that servers list: unknown ones, arguments that do not fit, and doubt (C-64)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledger.catalogs import GONE_SECONDS, MOST_BYTES, KnownCatalogs, Listing
from ledger.errors import Refused

SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 5},
        "parts": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["title"],
}
LOOSE = {"type": "object"}


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def row(server: str, catalog: dict[str, Any]) -> tuple[str, str, str]:
    listing = Listing.of(server, catalog)
    assert listing is not None
    return (listing.server, listing.digest, listing.body)


def known(*rows: tuple[str, str, str], clock: Clock | None = None) -> KnownCatalogs:
    made = KnownCatalogs(clock=clock or Clock())
    made.adopt(rows)
    return made


def told(refusal: Refused | None) -> tuple[str, str] | None:
    return None if refusal is None else (refusal.code, str(refusal))


@pytest.mark.proves("C-64")
@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"title": "short"}, None),
        ({"title": "secret-and-long"}, "arguments.title: does not fit the tool's schema (maxLength)"),
        ({"title": "a", "parts": [1, "secret"]}, "arguments.parts.1: does not fit the tool's schema (type)"),
        ({}, "arguments: does not fit the tool's schema (required)"),
        ({"title": "a", "parts": [10**5000]}, None),
    ],
)
def test_arguments_are_held_against_the_schema_and_never_quoted(arguments: dict[str, Any], answer: str | None) -> None:
    refusal = known(row("boards", {"create": SCHEMA})).refusal("boards", "create", arguments)
    assert told(refusal) == (answer and ("arguments_invalid", answer))


@pytest.mark.proves("C-64")
def test_a_tool_that_a_known_server_does_not_list_is_unknown() -> None:
    catalogs = known(row("boards", {"create": SCHEMA}))
    assert told(catalogs.refusal("boards", "drop", {})) == (
        "unknown_tool",
        "tool: the server boards lists no such tool now",
    )
    assert catalogs.refusal("mail", "send", {}) is None


@pytest.mark.proves("C-64")
def test_a_call_passes_that_any_workers_server_would_take() -> None:
    catalogs = known(row("boards", {"create": SCHEMA}), row("boards", {"create": LOOSE, "drop": LOOSE}))
    assert catalogs.refusal("boards", "create", {}) is None
    assert catalogs.refusal("boards", "drop", {}) is None
    assert catalogs.refusal("boards", "other", {}) is not None


@pytest.mark.proves("C-64")
def test_what_nobody_has_named_for_a_while_is_not_known() -> None:
    clock = Clock()
    catalogs = known(row("boards", {"create": SCHEMA}), clock=clock)
    clock.now += GONE_SECONDS
    assert catalogs.refusal("boards", "create", {}) is not None
    clock.now += 0.1
    assert catalogs.refusal("boards", "create", {}) is None
    catalogs.adopt([row("boards", {"create": SCHEMA})])
    assert catalogs.refusal("boards", "create", {}) is not None
    catalogs.adopt([])
    assert catalogs.refusal("boards", "create", {}) is None


@pytest.mark.proves("C-64")
def test_a_body_that_is_known_need_not_come_again() -> None:
    catalogs = known(row("boards", {"create": SCHEMA}))
    server, digest, _ = row("boards", {"create": SCHEMA})
    catalogs.adopt([(server, digest, "")])
    assert catalogs.refusal("boards", "create", {}) is not None
    # One that neither side has is not known.
    catalogs.adopt([("boards", "0" * 32, "")])
    assert catalogs.refusal("boards", "create", {}) is None


@pytest.mark.parametrize(
    "schema", [{"type": "nonsense"}, {"$ref": "http://127.0.0.1:1/schema"}, {"pattern": "(?=x)"}, {"$ref": "#/absent"}]
)
def test_a_schema_that_cannot_be_used_refuses_nothing(schema: dict[str, Any]) -> None:
    assert known(row("boards", {"create": schema})).refusal("boards", "create", {"title": 1}) is None


def test_a_pattern_cannot_keep_the_process_busy() -> None:
    schema = {"properties": {"title": {"pattern": "^(a+)+$"}}}
    refusal = known(row("boards", {"create": schema})).refusal("boards", "create", {"title": "a" * 5000 + "!"})
    assert told(refusal) == ("arguments_invalid", "arguments.title: does not fit the tool's schema (pattern)")


def test_schemas_that_are_too_large_are_left_out_and_names_too() -> None:
    large = {f"tool{n}": {"description": "x" * 1000} for n in range(MOST_BYTES // 1000)}
    listing = Listing.of("boards", large)
    assert listing is not None
    assert json.loads(listing.body) == dict.fromkeys(large, True)
    assert Listing.of("boards", {f"{n:0200}": {} for n in range(MOST_BYTES // 200)}) is None


def test_a_schema_that_cannot_be_written_is_left_out() -> None:
    nested: dict[str, Any] = {}
    for _ in range(100_000):
        nested = {"not": nested}
    listing = Listing.of("boards", {"create": nested, "drop": {"maximum": 10**5000}})
    assert listing is not None
    assert json.loads(listing.body) == {"create": True, "drop": True}
