"""What the ledger commands decide without a store: words, ids, views, columns."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.acceptance import StoreState
from ledger.cli import tables
from ledger.cli.approvals import lines_of, with_fix
from ledger.cli.reconcile import explained, find_mutation
from ledger.cli.store import announce
from ledger.cli.tables import pretty, print_exact, print_table, printable
from ledger.cli.views import mutation_view, session_view, waiting_view
from ledger.errors import LedgerError, Refused, StoreUnavailable
from ledger.records import Approval, Entry, Session, Turn
from ledger.states import MutationStatus

ENTRY = Entry(
    logical_turn_id="00turn",
    mutation_id="abcd" + "0" * 60,
    tool="mcp__d__create",
    status=MutationStatus.OUTCOME_UNKNOWN,
    revision=2,
    order=1,
    not_after=1_796_083_126_447,
    reason="execution_timeout",
    metadata=None,
    reconciled_by=None,
    run_id="00run",
    index=0,
)
APPROVAL = Approval(
    approval_id="00approval",
    state="pending",
    tenant="acme",
    session_id="s1",
    run_id="00run",
    index=0,
    tool="mcp__d__create",
    mutation_id="ab" * 32,
    level="confirm",
    requested_by="agent",
    user="dana",
    requested_at=1_796_083_126_447,
    expires_at=1_796_083_426_447,
    decided_by=None,
    decided_at=None,
    comment=None,
    arguments={"title": "secret"},
)


def session(*entries: Entry) -> Session:
    turn = Turn("00turn", "ops", "dana", ("d" * 64,), True, 4, 1_796_083_126_447, entries)
    return Session(
        session_id="s1",
        tenant="acme",
        generation=1,
        created_at=0,
        last_message_at=1_796_083_126_447,
        live_runs=0,
        owner=None,
        turns=(turn,),
    )


def test_a_mutation_is_found_by_the_beginning_of_its_id() -> None:
    other = dataclasses.replace(ENTRY, mutation_id="abce" + "0" * 60)
    found = session(ENTRY, other)
    assert find_mutation(found, "abcd") == ENTRY.mutation_id
    assert find_mutation(found, ENTRY.mutation_id) == ENTRY.mutation_id
    twin = dataclasses.replace(ENTRY, mutation_id="abcd" + "1" * 60)
    with pytest.raises(click.BadParameter, match="2 mutations of this turn begin so"):
        find_mutation(session(ENTRY, twin), "abcd")
    for missing in ("ffff", ENTRY.mutation_id[1:]):
        with pytest.raises(Refused, match="see `mutation-ledger unknowns`"):
            find_mutation(found, missing)
    for nothing in (None, dataclasses.replace(found, turns=())):
        with pytest.raises(Refused):
            find_mutation(nothing, "abcd")


@pytest.mark.parametrize("bad", ["", "abc", "ABCD", "xyz1", "a" * 65, "abcd\n", "../x"])
def test_what_cannot_be_a_mutation_id_is_a_usage_error(bad: str) -> None:
    with pytest.raises(click.BadParameter, match="64 hex digits"):
        find_mutation(session(ENTRY), bad)


@pytest.mark.parametrize(
    ("code", "text", "says"),
    [
        ("attempt_may_be_running", "1796083126447", "until 2026-11-30T23:58:46.447Z: wait, or stop its worker and add"),
        ("attempt_may_be_running", "wait until it is stored unknown", "wait until it is stored as unknown"),
        ("not_reconcilable", "x", "only unknown outcomes are reconciled"),
        ("not_found", "no such session", "no such session"),
    ],
)
def test_a_refused_reconciliation_says_what_to_do(code: str, text: str, says: str) -> None:
    error = explained(Refused(text, code=code))
    assert error.code == code
    assert says in str(error)


def test_accepting_is_announced_as_what_it_is() -> None:
    refused = StoreState(16, made=True, refused=(3, 4), known_ids=frozenset())
    assert announce(refused)[0] == "2 of 16 shards are refused: the store lost confirmed writes"
    assert "NOT refused" in announce(StoreState(16, made=True, refused=(), known_ids=frozenset()))[0]
    assert "empty" in announce(StoreState(16, made=False, refused=(), known_ids=frozenset()))[0]
    assert any("voids every approval" in line for line in announce(refused))


def test_views_hold_no_arguments_and_public_times() -> None:
    shown = session_view(session(ENTRY))
    (mutation,) = shown["turns"][0]["mutations"]
    assert mutation == mutation_view(ENTRY)
    assert mutation["status"] == "outcome_unknown"
    assert mutation["outcome"]["reason"] == "execution_timeout"
    assert mutation["may_run_until"] == "2026-11-30T23:58:46.447Z"
    assert "arguments" not in json.dumps(shown)
    waiting = waiting_view(APPROVAL, arguments=False)
    assert "secret" not in json.dumps(waiting)
    assert waiting_view(APPROVAL, arguments=True)["arguments"] == {"title": "secret"}
    assert waiting["expires_at"] == "2026-12-01T00:03:46.447Z"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain text", "plain text"),
        ("café ﬁ 漢", "café ﬁ 漢"),
        ("a\x1b[31mb", "a\\u001b[31mb"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("zero\u200bwidth\u3164", "zero\\u200bwidth\\u3164"),
        ("line\nbreak\x85", "line\\u000abreak\\u0085"),
        ("\U000e0041\udc80", "\\udb40\\udc41\\udc80"),
        ("no\u00a0break", "no\\u00a0break"),
    ],
)
def test_nothing_invisible_reaches_a_terminal(raw: str, shown: str) -> None:
    assert printable(raw) == shown


@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner)))
def test_pretty_json_is_readable_and_the_same_json(value: Any) -> None:
    lines = pretty(value)
    assert json.loads("\n".join(lines)) == value
    assert all(line.isprintable() for line in lines)


def test_json_of_arguments_is_exact(capsys: pytest.CaptureFixture[str]) -> None:
    print_exact({"n": 2**64 + 1, "f": 1.0, "u": "é"})
    assert capsys.readouterr().out == '{"n":18446744073709551617,"f":1.0,"u":"\\u00e9"}\n'


def test_a_table_in_a_pipe_keeps_its_lines_whole(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("one", "two"), [["x" * 300, "[bold]b[/bold]"], [None, "e\x1b"]])
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["one", "two"]
    assert first.split() == ["x" * 300, "[bold]b[/bold]"]
    assert second.split() == ["-", "e\\u001b"]
    assert tables.PIPE_COLUMNS >= 10_000


def test_an_approval_in_lines() -> None:
    shown: Any = {
        "id": "00a",
        "tool": "mcp__d__create",
        "level": "confirm",
        "session_id": "s1",
        "user": "dana\x1b[2J",
        "requested_by": "agent",
        "expires_at": "2026-12-01T00:03:46.447Z",
        "arguments": {"title": "Errors"},
    }
    assert lines_of(shown) == [
        "00a  mcp__d__create  level confirm",
        "  session s1  user dana\\u001b[2J  asked by agent  expires 2026-12-01T00:03:46.447Z",
        "  {",
        '    "title": "Errors"',
        "  }",
    ]


def test_errors_of_the_api_keep_their_kind_and_get_the_fix() -> None:
    fixed = with_fix(Refused("no", code="not_an_approver", status=403))
    assert (type(fixed), str(fixed), fixed.code) == (
        Refused,
        "no; use a token with the role approve",
        "not_an_approver",
    )
    assert "MUTATION_LEDGER_TOKEN" in str(with_fix(Refused("no", code="http_401", status=401)))
    plain = StoreUnavailable("later", code="store_unavailable")
    assert with_fix(plain) is plain
    assert isinstance(with_fix(LedgerError("x", code="not_found")), LedgerError)
