"""C13: two account numbers beyond 64 bits are two accounts, from the door to the tool."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.identity import mutation_identity
from tests.support.case_tools import ASK
from tests.support.casework import CaseStack

PAIRS = [
    (18446744073709551616, 18446744073709551617),
    (-9223372036854775809, -9223372036854775808),
    (9007199254740992, 9007199254740993),
    (10**4000, 10**4000 + 1),
    (10**4300, 10**4300 + 1),
    (-(7**24_000), -(7**24_000) - 2),
    (10**200_000 - 1, 10**200_000 - 2),
]
IDS = ["over 64 bits", "under", "over 53 bits", "4000 digits", "4301 digits", "20282 digits", "200000 digits"]
DIGESTS = {
    18446744073709551616: "8053a9d8fb1decab",
    18446744073709551617: "8cedf35088b03587",
    9007199254740992: "db1b77f83c2713e8",
    9007199254740993: "35b861faa22b2635",
}


@pytest.mark.proves("C-01", "C-02")
@pytest.mark.parametrize(
    ("one", "other"), PAIRS, ids=["over 64 bits", "under", "over 53 bits", "4000 digits", "4301", "20282", "200000"]
)
def test_each_is_asked_about_by_itself_and_reaches_the_tool_exactly(cases: CaseStack, one: int, other: int) -> None:
    session = f"c13-{one % 1_000_003}"
    first = cases.api.trigger(session, "d1", [(ASK, {"account": one})]).body
    second = cases.api.trigger(session, "d2", [(ASK, {"account": other})]).body
    ids = [run["calls"][0]["mutation_id"] for run in (first, second)]
    assert ids == [mutation_identity(ASK, {"account": n}) for n in (one, other)]
    assert ids[0] != ids[1]

    # A's approval pays for A only.
    assert cases.api.approve(first["calls"][0]["approval_id"]).status == 200
    assert cases.api.ended(first["run_id"])["status"] == "completed"
    assert cases.api.run(second["run_id"])["status"] == "waiting_for_approval"
    assert cases.effects(account=other) == []

    assert cases.api.approve(second["calls"][0]["approval_id"]).status == 200
    done = cases.api.ended(second["run_id"])
    assert (done["status"], done["calls"][0]["refusal"]) == ("completed", None)
    effects: list[dict[str, Any]] = [*cases.effects(account=one), *cases.effects(account=other)]
    assert [line["arguments"]["account"] for line in effects] == [one, other]
    assert [line["mutation_id"] for line in effects] == ids


@pytest.mark.proves("C-01")
def test_the_digests_of_the_case_hold() -> None:
    assert {n: mutation_identity("pay", {"account": n})[:16] for n in list(DIGESTS)[:2]} == dict(
        list(DIGESTS.items())[:2]
    )
    assert {n: mutation_identity("pay", {"n": n})[:16] for n in list(DIGESTS)[2:]} == dict(list(DIGESTS.items())[2:])


@pytest.mark.proves("C-02")
def test_what_no_reader_takes_is_refused_before_it_is_hashed(cases: CaseStack) -> None:
    raw = b'{"session_id":"c13-refused","calls":[{"tool":"case_ask","arguments":{"account":' + b"9" * 262_145 + b"}}]}"
    reply = cases.api.post("/api/trigger", raw)
    assert (reply.status, reply.body["code"]) == (400, "invalid_request")
