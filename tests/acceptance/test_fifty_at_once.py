"""Fifty identical requests at once through two front doors: one run, one mutation, one effect, fifty same answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.case_tools import HELD, PAY
from tests.support.stack import Api, Stack
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

REQUESTS = 50


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two front doors and two workers on one store."""
    server = ValkeyProcess(tmp_path_factory.mktemp("fifty-store")).start()
    made = Stack(tmp_path_factory.mktemp("fifty"), server.url, '[plugins]\nmodules = ["tests.support.case_tools"]\n')
    for _ in range(2):
        made.add_front_door()
        made.add_worker()
    yield made
    made.stop()
    server.stop()


def _at_once(stack: Stack, send: Callable[[Api, int], Any], opened: Callable[[], None]) -> list[Any]:
    """The answers of all requests, sent through both doors at the same moment; `opened` is called meanwhile."""
    doors = [Api(port) for port in stack.ports]
    answers: list[Any] = [None] * REQUESTS
    start = threading.Barrier(REQUESTS)

    def one(n: int) -> None:
        start.wait(20)
        answers[n] = send(doors[n % len(doors)], n)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(REQUESTS)]
    for thread in threads:
        thread.start()
    opened()
    for thread in threads:
        thread.join(60)
    assert all(answer is not None for answer in answers)
    return answers


def _effects(stack: Stack, case: str) -> list[dict[str, Any]]:
    return [line for line in stack.effects() if line["arguments"].get("case") == case]


def _admitted(stack: Stack) -> int:
    """Requests that both doors have admitted or attached so far."""
    counted = 0.0
    for port in stack.ports:
        for line in Api(port).get("/metrics").body.decode().splitlines():
            if line.startswith("mutation_ledger_admissions_total"):
                counted += float(line.split()[-1])
    return int(counted)


@pytest.mark.acceptance
@pytest.mark.proves("C-60", "C-61", "C-13")
@pytest.mark.parametrize("delivery_id", ["d-50", None])
def test_fifty_requests_are_one_run(stack: Stack, tmp_path: Path, delivery_id: str | None) -> None:
    """Half of them wait, in the three forms an answer may have; all of it while the one call is out."""
    case = f"fifty-{delivery_id}"
    body = {
        "session_id": case, "agent": "ops", "user": "dana", "delivery_id": delivery_id,
        "calls": [{"tool": HELD, "arguments": {"case": case, "gate": case}}],
    }  # fmt: skip
    before = _admitted(stack)
    forms = ("application/json", "application/x-ndjson", "text/event-stream")

    def send(api: Api, n: int) -> Any:
        if n % 2:
            return api.post("/api/trigger", body).body
        return _last(api.post("/api/trigger?wait=50", body, Accept=forms[n // 2 % 3]).body)

    def opened() -> None:
        wait_until(lambda: _admitted(stack) - before == REQUESTS, 30, "every request to be admitted")
        wait_until(lambda: _effects(stack, case), 20, "the call to be out")
        (stack.directory / f"gate-{case}").touch()

    answers = _at_once(stack, send, opened)
    assert len({answer["run_id"] for answer in answers}) == 1
    assert len({answer["delivery"] for answer in answers}) == 1
    assert len({answer["calls"][0]["mutation_id"] for answer in answers}) == 1
    waited = [answer for n, answer in enumerate(answers) if n % 2 == 0]
    assert {answer["status"] for answer in waited} == {"completed"}
    assert len({json.dumps(answer["calls"], sort_keys=True) for answer in waited}) == 1
    assert len({answer["logical_turn_id"] for answer in waited}) == 1
    assert len(_effects(stack, case)) == 1
    outcomes = Api(stack.ports[0]).outcomes(case)
    assert [outcome["status"] for outcome in outcomes] == ["completed"]


def _last(body: Any) -> Any:
    """The run in an answer of any form."""
    if isinstance(body, bytes):
        text = body.decode().strip().splitlines()[-1].removeprefix("data: ")
        run: dict[str, Any] = json.loads(text)
        return run
    return body


@pytest.mark.acceptance
@pytest.mark.proves("C-60", "C-13")
def test_fifty_requests_in_a_race_with_their_own_end_do_one_thing(stack: Stack) -> None:
    """Nothing holds the call: some find the run live, some find it ended; the effect happens once."""
    case = "fifty-race"
    answers = _at_once(
        stack, lambda api, n: api.trigger(case, "d-51", [(PAY, {"case": case})], wait=20).body, lambda: None
    )
    assert len({answer["delivery"] for answer in answers}) == 1
    assert {answer["status"] for answer in answers} == {"completed"}
    done = [answer for answer in answers if answer["calls"][0]["outcome"]]
    refused = [answer for answer in answers if answer["calls"][0]["refusal"]]
    assert len(done) + len(refused) == REQUESTS
    assert len({answer["run_id"] for answer in done}) == 1
    assert {answer["calls"][0]["refusal"]["code"] for answer in refused} <= {"mutation_completed"}
    assert len(_effects(stack, case)) == 1
