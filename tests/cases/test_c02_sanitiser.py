"""C02: text that no parser can judge comes with an outcome. The outcome stands; only the bad field is withheld."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.service import AUTO, Bench, plan

LONG = "é" * 2_000
UNJUDGEABLE: list[tuple[dict[str, str], dict[str, str | None]]] = [
    ({"url": "http://[::1/x"}, {"url": None}),
    ({"url": "https://ex℀mple.com/"}, {"url": None}),
    ({"url": "https://host.example:99999/x"}, {"url": None}),
    ({"title": LONG}, {"title": "é" * 256}),
    ({"id": "7", "url": "http://[::1/x"}, {"resource_id": "7", "url": None}),
]
MISSHAPEN: list[tuple[Any, int]] = [
    ({"url": 17}, 400),
    ({"title": None}, 400),
    ({"id": {"a": 1}}, 400),
    ({"title": "é" * 5_000_000}, 413),
    ({"title": "é" * 5_000}, 400),
]


def _done(bench: Bench) -> dict[str, Any]:
    run = bench.trigger((AUTO, {"n": 1}), delivery_id="d1")
    bench.finish(run)
    return run


def _attach(bench: Bench, run: dict[str, Any], metadata: Any) -> Any:
    body = {"session_id": "s1", "delivery_id": "d1", "mutation_id": run["calls"][0]["mutation_id"]}
    return bench.post("/api/mutation-metadata", body | {"metadata": metadata})


def _outcome(bench: Bench) -> dict[str, Any]:
    (outcome,) = bench.get("/api/mutation-outcomes?session_id=s1").get_json()["mutation_outcomes"]
    assert isinstance(outcome, dict)
    return outcome


@pytest.mark.proves("C-100", "C-102")
@pytest.mark.parametrize(("metadata", "shown"), UNJUDGEABLE)
def test_only_the_field_is_withheld(bench: Bench, metadata: dict[str, str], shown: dict[str, str | None]) -> None:
    run = _done(bench)
    reply = _attach(bench, run, metadata)
    assert reply.status_code == 200, reply.text
    assert _outcome(bench) == reply.get_json()
    assert _outcome(bench)["status"] == "completed"
    assert {name: _outcome(bench)[name] for name in shown} == shown


@pytest.mark.proves("C-90")
@pytest.mark.parametrize(("metadata", "status"), MISSHAPEN)
def test_what_is_no_metadata_is_refused_and_the_outcome_stands(bench: Bench, metadata: Any, status: int) -> None:
    run = _done(bench)
    before = _outcome(bench)
    assert _attach(bench, run, metadata).status_code == status
    assert _outcome(bench) == before
    assert before["status"] == "completed"


@pytest.mark.proves("C-60")
def test_no_second_call_comes_of_it(bench: Bench) -> None:
    run = _done(bench)
    _attach(bench, run, {"url": "http://[::1/x"})
    again = bench.post("/api/trigger", plan((AUTO, {"n": 1}), delivery_id="d1")).get_json()
    assert (again["status"], again["calls"][0]["refusal"]["code"]) == ("completed", "mutation_completed")


@pytest.mark.proves("C-100")
@pytest.mark.parametrize(
    "said",
    [
        {"url": "http://[::1/x"},
        {"url": "https://ex℀mple.com/"},
        {"url": "https://host.example:99999/x"},
        {"url": 17},
        {"title": None},
        {"title": "é" * 200_000},
        {"resource_id": {"a": 1}, "id": {"a": 1}},
    ],
)
def test_what_the_tool_itself_says_is_never_published(bench: Bench, said: dict[str, Any]) -> None:
    run = bench.trigger((AUTO, {"n": 1}), delivery_id="d1")
    bench.settle(bench.begin(run), result=json.dumps(said))
    assert {name: _outcome(bench)[name] for name in ("status", "url", "title", "resource_id")} == {
        "status": "completed", "url": None, "title": None, "resource_id": None,
    }  # fmt: skip
