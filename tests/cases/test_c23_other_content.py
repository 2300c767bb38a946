"""C23: a delivery id stands for one content. Other content is refused always, the same content is the same delivery."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tests.support.case_tools import HELD, PAY
from tests.support.casework import CaseStack
from tests.support.stack import Reply


def _post(cases: CaseStack, did: str, tool: str, arguments: str, **headers: str) -> Reply:
    body = f'{{"session_id":"c23","user":"dana","agent":"ops","delivery_id":"{did}",'
    body += f'"calls":[{{"tool":"{tool}","arguments":{arguments}}}]}}'
    return cases.api.post("/api/trigger", body.encode(), **headers)


def _refused(reply: Reply) -> bool:
    return (reply.status, reply.body["code"]) == (422, "delivery_mismatch")


@pytest.mark.proves("C-60")
def test_while_it_runs_and_after_it_ended(cases: CaseStack) -> None:
    one = '{"amount":1,"gate":"c23"}'
    first = _post(cases, "d-1", HELD, one).body
    cases.entered(gate="c23")
    assert _refused(_post(cases, "d-1", HELD, '{"amount":2,"gate":"c23"}'))
    assert _refused(_post(cases, "d-1", PAY, one))
    # Other spelling, same content: attached to the live run.
    assert _post(cases, "d-1", HELD, ' { "gate" : "c23",\n "amount" : 1 } ').body["run_id"] == first["run_id"]
    cases.open_gate("c23")
    cases.api.ended(first["run_id"])

    assert _refused(_post(cases, "d-1", HELD, '{"amount":2,"gate":"c23"}'))
    assert _refused(_post(cases, "d-1", HELD, '{"amount":1.0,"gate":"c23"}'))
    again = _post(cases, "d-1", HELD, '{"gate":"c23","amount":1}')
    assert (again.status, again.body["calls"][0]["refusal"]["code"]) == (200, "mutation_completed")
    assert again.body["delivery"] == first["delivery"]
    lines = _post(cases, "d-1", HELD, one, Accept="application/x-ndjson").body.decode().splitlines()
    done = json.loads(lines[-1])
    assert (done["type"], done["delivery"]) == ("done", first["delivery"])
    assert done["calls"][0]["refusal"]["code"] == "mutation_completed"
    assert len(cases.effects(gate="c23")) == 1


@pytest.mark.proves("C-60")
def test_a_refused_one_queues_nothing(cases: CaseStack) -> None:
    _post(cases, "d-3", PAY, '{"case":"c23-3","amount":1}')
    before = cases.api.get("/metrics").body
    assert _refused(_post(cases, "d-3", PAY, '{"case":"c23-3","amount":2}'))
    assert _refused(_post(cases, "d-3", PAY, '{"case":"c23-3","amount":3}'))
    assert cases.effects(case="c23-3", amount=2) == cases.effects(case="c23-3", amount=3) == []
    counted = b'mutation_ledger_admissions_total{result="new"}'
    assert [line for line in before.splitlines() if line.startswith(counted)] == [
        line for line in cases.api.get("/metrics").body.splitlines() if line.startswith(counted)
    ]


@pytest.mark.proves("C-60")
def test_fifty_at_once_are_one(cases: CaseStack) -> None:
    replies: list[Any] = []
    start = threading.Barrier(50)

    def post() -> None:
        start.wait(20)
        replies.append(_post(cases, "d-2", PAY, '{"case":"c23-2"}'))

    threads = [threading.Thread(target=post) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(replies) == 50
    assert {reply.status for reply in replies} <= {200, 202}
    assert len({reply.body["calls"][0]["mutation_id"] for reply in replies}) == 1
    assert len({reply.body["delivery"] for reply in replies}) == 1
    for run_id in {reply.body["run_id"] for reply in replies}:
        cases.api.ended(run_id)
    assert len(cases.effects(case="c23-2")) == 1
