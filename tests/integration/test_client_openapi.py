"""The client against the OpenAPI document: every operation, parameter, field and shape is there, and nothing else."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NotRequired, get_origin, get_type_hints

import pytest
from jsonschema import Draft202012Validator
from werkzeug.serving import make_server

from ledger import client as shapes
from ledger.client import Client
from ledger.client import client as client_module
from ledger.client.http import Http
from tests.support.service import ASK, AUTO, Bench

CALLS = [{"tool": AUTO, "arguments": {"n": 1}}]
ASKED = [{"tool": ASK, "arguments": {"n": 1}}]
Seen = list[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]


@pytest.fixture
def url(bench: Bench) -> Iterator[str]:
    """The front door of `bench` on a loopback port."""
    server = make_server("127.0.0.1", 0, bench.app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.port}"
    server.shutdown()
    thread.join(10)
    server.server_close()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Method, path, given query and body of every request that a client sends."""
    requests: Seen = []
    answer: Any = Http._answer

    @contextmanager
    def noted(self: Http, method: str, path: str, query: Any, body: Any, accept: str, wait: float) -> Iterator[Any]:
        requests.append((method, path, {k: v for k, v in (query or {}).items() if v is not None}, body or {}))
        with answer(self, method, path, query, body, accept, wait) as response:
            yield response

    monkeypatch.setattr(Http, "_answer", noted)
    return requests


class Tour:
    """One use of every method, with every parameter; `values` are the answers by operation."""

    def __init__(self, url: str, bench: Bench) -> None:
        host, bob, carol = (Client(url, name) for name in ("host", "bob", "carol"))
        self.values: dict[tuple[str, str], Any] = {}
        whose: Any = {"agent": "ops", "user": "dana"}
        made = host.trigger("s1", CALLS, delivery_id="d1", on_error="continue", deadline_seconds=60, wait=0.01, **whose)
        self.values["POST", "/api/trigger"] = made
        bench.finish(made)  # type: ignore[arg-type]  # a typed dict is a dict
        run = host.run(made["run_id"])
        self.values["GET", "/api/runs/{run_id}"] = run
        mutation, turn = run["calls"][0]["mutation_id"], run["logical_turn_id"]
        assert turn is not None
        self.values["GET", "/api/runs/{run_id}/events"] = {
            "events": list(host.events(run["run_id"]))[:-1],
            "next": len(list(host.events(run["run_id"], after=1, follow=True))),
        }
        continued = host.trigger("s1", ASKED, delivery_id="d2", logical_turn_id=turn, **whose)
        self.values["POST", "/api/runs/{run_id}/cancel"] = host.cancel(continued["run_id"])
        asked = host.trigger("s1", ASKED, delivery_id="d3", **whose)
        host.trigger("s1", ASKED, delivery_id="d4", **whose)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(client_module, "PAGE_APPROVALS", 1)
            waiting = bob.approvals(session_id="s1", limit=2)
        assert len(waiting) == 2
        self.values["GET", "/api/approvals"] = {"approvals": waiting, "next": None}
        approval = asked["calls"][0]["approval_id"]
        assert approval == waiting[0]["id"]
        self.values["GET", "/api/approvals/{approval_id}"] = bob.approval(approval)
        decided = bob.decide(approval, "deny", confirm=ASK, comment="no")
        self.values["POST", "/api/approvals/{approval_id}"] = decided
        self.values["POST", "/api/mutation-metadata"] = host.attach_metadata(
            "s1", mutation, {"title": "t"}, delivery_id="d1", **whose
        )
        host.attach_metadata("s1", mutation, {"title": "u"}, logical_turn_id=turn, **whose)
        self.values["GET", "/api/mutation-outcomes"] = {"mutation_outcomes": host.outcomes("s1")}
        self.changes = host.mutation_events("s1", turn, after=1)
        frame = {"id": str(self.changes[0].revision), "event": "mutation_outcome"}
        self.values["GET", "/api/mutation-events"] = frame | {"data": json.dumps(self.changes[0].record)}
        self.values["GET", "/api/mutation-state"] = {"mutation_state": host.mutation_state("s1", "d1", **whose)}
        self.values["DELETE", "/api/sessions/{session_id}"] = {"session_id": "s1", "status": "erasing"}
        assert carol.erase("s1", wait=0.01) is False
        self.values["GET", "/api/contracts/mutation_outcome_v1.json"] = host.outcome_contract()
        self.values["GET", "/openapi.json"] = host.openapi()
        assert host.alive()
        self.values["GET", "/livez"] = {"status": "alive"}
        self.values["GET", "/readyz"] = host.ready()
        self.values["GET", "/metrics"] = host.metrics()


def _operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    methods = ("get", "post", "put", "patch", "delete")
    return {
        (method.upper(), path): operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method in methods
    }


def _template(operations: Any, method: str, path: str) -> tuple[str, str]:
    for known, template in operations:
        if known == method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
            return known, template
    raise AssertionError(f"{method} {path} is not in the document")


def _schema(document: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    return {**content["schema"], "components": document["components"]}


def test_every_operation_parameter_and_field_has_its_place_in_the_client(url: str, bench: Bench, seen: Seen) -> None:
    tour = Tour(url, bench)
    document = tour.values["GET", "/openapi.json"]
    operations = _operations(document)
    assert tour.values.keys() == operations.keys()
    given: dict[tuple[str, str], tuple[set[str], set[str]]] = {}
    for method, path, query, body in seen:
        names, fields = given.setdefault(_template(operations, method, path), (set(), set()))
        names.update(query)
        fields.update(body)
    assert given.keys() == operations.keys()
    # A plan has no handler, text and input; the methods take them all the same.
    given["POST", "/api/trigger"][1].update({"handler", "text", "input"} & get_type_hints(Client.trigger).keys())
    for operation, described in operations.items():
        parameters = {one["name"] for one in described.get("parameters", ()) if one["in"] == "query"}
        assert given[operation][0] == parameters, operation
        assert given[operation][1] == _fields(document, described), operation


def _fields(document: dict[str, Any], described: dict[str, Any]) -> set[str]:
    if "requestBody" not in described:
        return set()
    schema = described["requestBody"]["content"]["application/json"]["schema"]
    return set(document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]["properties"])


def test_every_answer_is_of_the_described_shape(url: str, bench: Bench) -> None:
    tour = Tour(url, bench)
    document = tour.values["GET", "/openapi.json"]
    for operation, described in _operations(document).items():
        content = next(reply["content"] for status, reply in described["responses"].items() if status in ("200", "202"))
        kind = "application/json" if "application/json" in content else next(iter(content))
        validator = Draft202012Validator(_schema(document, content[kind]))
        errors = [error.message for error in validator.iter_errors(tour.values[operation])]
        assert errors == [], operation
    assert [(change.revision, change.record["title"]) for change in tour.changes] == [(4, "u")]


@pytest.mark.parametrize(
    ("shape", "schema"),
    [
        (shapes.Run, "RunReply"),
        (shapes.Call, "CallReply"),
        (shapes.Event, "JournalEvent"),
        (shapes.Record, "MutationOutcome"),
        (shapes.Approval, "ApprovalReply"),
        (shapes.State, "TurnState"),
        (shapes.Mutation, "TurnMutation"),
        (shapes.Ready, "ReadyReply"),
    ],
)
def test_the_clients_types_have_the_described_fields(bench: Bench, shape: Any, schema: str) -> None:
    described = bench.get("/openapi.json").get_json()["components"]["schemas"][schema]
    hints = get_type_hints(shape, include_extras=True)
    assert hints.keys() == described["properties"].keys()
    if shape is not shapes.Event:  # its last line is the run's
        assert {name for name, hint in hints.items() if get_origin(hint) is not NotRequired} == {*described["required"]}


def test_both_ways_to_hand_in_take_the_same(bench: Bench) -> None:
    def fields(method: Callable[..., Any]) -> set[str]:
        return get_type_hints(method).keys() - {"return", "wait"}

    assert fields(Client.trigger) == fields(Client.trigger_stream)
