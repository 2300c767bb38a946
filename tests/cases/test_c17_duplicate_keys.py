"""C17: a name twice in one object is read differently by different readers; nobody gets to read it."""

from __future__ import annotations

import pytest

from tests.support.casework import untouched
from tests.support.service import ASK, Bench, bearer

ONE = '{"amount":1}'
BODY = '{"session_id":"c17","calls":[{"tool":"' + ASK + '","arguments":' + ONE + "}]}"


def _with(before: str, after: str) -> str:
    assert before in BODY
    return BODY.replace(before, after, 1)


@pytest.mark.proves("C-02")
@pytest.mark.parametrize(
    "body",
    [
        _with("{", '{"delivery_id":"d-17","delivery_id":"d-18",'),
        _with("{", '{"delivery_id":"d-17","delivery_id":"d-17",'),
        _with("{", '{"delivery_id":"d-17","delivery\\u005fid":"d-18",'),
        _with(ONE, '{"amount":1,"amount":1000}'),
        _with(ONE, '{"a":{"b":[{"amount":1,"amount":1000}]}}'),
        _with(ONE, '{"amount":1,"\\u0061mount":1000}'),
        _with(ONE, '{"":1,"":1}'),
        _with('"tool":', '"tool":"x","tool":'),
    ],
)
def test_it_is_refused_before_anybody_is_asked(bench: Bench, body: str) -> None:
    with untouched(bench):
        reply = bench.raw(body.encode())
    assert (reply.status_code, reply.get_json()["code"]) == (400, "invalid_request")
    assert "duplicate" in reply.get_json()["detail"]
    assert bench.get("/api/approvals", as_="bob").get_json()["approvals"] == []


@pytest.mark.proves("C-02")
def test_decisions_are_read_as_strictly(bench: Bench) -> None:
    run = bench.raw(BODY.encode()).get_json()
    with untouched(bench):
        reply = bench.client.post(
            f"/api/approvals/{run['calls'][0]['approval_id']}",
            data=b'{"decision":"deny","decision":"approve"}',
            content_type="application/json",
            headers=bearer("bob"),
        )
    assert (reply.status_code, reply.get_json()["code"]) == (400, "invalid_request")


@pytest.mark.proves("C-02")
def test_the_same_name_in_two_objects_is_fine(bench: Bench) -> None:
    assert bench.raw(_with(ONE, '{"a":{"x":1},"b":{"x":2}}').encode()).status_code == 202
