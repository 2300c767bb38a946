"""C21: one limit on nesting, 64 levels, whoever reads; sizes that would break a parser are refused as well."""

from __future__ import annotations

import json

import pytest

from ledger.strict_json import canonical
from tests.support.case_tools import ODD, PAY
from tests.support.casework import CaseStack, untouched
from tests.support.service import ASK, Bench


def nested(levels: int) -> str:
    """An object of so many levels."""
    return '{"a":' * (levels - 1) + "{}" + "}" * (levels - 1)


def body(arguments: str, tool: str = ASK, session: str = "c21") -> bytes:
    """A trigger with these very characters as arguments."""
    return f'{{"session_id":"{session}","calls":[{{"tool":"{tool}","arguments":{arguments}}}]}}'.encode()


@pytest.mark.proves("C-02")
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (nested(65), 400),
        (nested(300), 400),
        (nested(990), 400),
        (nested(1_100), 400),
        (nested(100_000), 400),
        ('{"a":' + "[" * 100_000, 400),
        ('{"n":' + "9" * 262_145 + "}", 400),
        (json.dumps({f"k{n}": 0 for n in range(60_000)}), 400),
        (json.dumps({f"k{n}": 0 for n in range(200_000)}), 413),
    ],
    ids=["65", "300", "990", "1100", "100000", "unclosed", "262145 digits", "60000 keys", "200000 keys"],
)
def test_beyond_the_limit_nothing_is_stored(bench: Bench, arguments: str, status: int) -> None:
    with untouched(bench):
        reply = bench.raw(body(arguments))
    assert reply.status_code == status
    assert reply.content_type == "application/problem+json"


@pytest.mark.proves("C-02")
@pytest.mark.parametrize("levels", [50, 64])
def test_up_to_it_a_call_is_done(cases: CaseStack, levels: int) -> None:
    session = f"c21-{levels}"
    run = cases.api.post("/api/trigger?wait=20", body(nested(levels), PAY, session)).body
    assert run["calls"][0]["outcome"]["status"] == "completed"
    assert any(canonical(line["arguments"]).count("{") == levels for line in cases.stack.effects())


@pytest.mark.proves("C-100")
@pytest.mark.parametrize("answer", ["deep", "surrogate", "bytes", "huge"])
def test_a_result_beyond_it_is_withheld_and_the_outcome_stands(cases: CaseStack, answer: str) -> None:
    session = f"c21-{answer}"
    run = cases.api.trigger(session, "d1", [(ODD, {"answer": answer, "case": session})], wait=20).body
    assert (run["status"], run["calls"][0]["result"]) == ("completed", None)
    assert [outcome["status"] for outcome in cases.api.outcomes(session)] == ["completed"]
    # The worker lives, and does the next thing.
    assert cases.api.trigger(session, "d2", [(PAY, {"case": session})], wait=20).body["status"] == "completed"
