"""Another tenant's ids on every route of the OpenAPI document: answered exactly as ids that never were (section 15)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import redis
from werkzeug.test import TestResponse

from ledger.config import Role
from ledger.ids import new_id
from ledger.tokens import token_hash
from tests.support import snapshot
from tests.support.service import ASK, AUTO, Bench, bearer, plan

OWNER, STRANGER, EMPTY = "owner", "stranger", "nobody-there"
SESSION = "session-1"
TENANTS = {OWNER: "acme", STRANGER: "umbrella", EMPTY: "void"}
CALLS = [{"tool": AUTO, "arguments": {"n": 1}}]
# For each request body of the document: the fields that are no ids, and the sets of ids that may go with them.
BODIES: dict[str, list[tuple[dict[str, Any], tuple[str, ...]]]] = {
    "TriggerRequest": [
        ({"calls": CALLS}, ("session_id", "delivery_id")),
        ({"calls": CALLS, "delivery_id": "new"}, ("session_id", "logical_turn_id")),
    ],
    "DecisionRequest": [({"decision": "approve"}, ()), ({"decision": "deny"}, ())],
    "MetadataRequest": [
        ({"metadata": {"title": "stolen"}}, ("session_id", "mutation_id", "delivery_id")),
        ({"metadata": {"title": "stolen"}}, ("session_id", "mutation_id", "logical_turn_id")),
    ],
}
# Parameters that name nothing of a tenant's.
NEUTRAL = {"after", "follow", "wait", "limit", "state", "agent", "user"}


@dataclass(frozen=True)
class Request:
    """One request of the matrix with the ids it names left open."""

    method: str
    path: str
    query: tuple[str, ...]
    fields: Mapping[str, Any] | None
    ids: tuple[str, ...]
    accept: str

    @property
    def names(self) -> set[str]:
        """The ids it names."""
        return {*self.query, *self.ids, *re.findall(r"\{(\w+)\}", self.path)}

    def send(self, bench: Bench, token: str, ids: Mapping[str, str]) -> TestResponse:
        """Sends it with these ids."""
        body = None if self.fields is None else {**self.fields, **{name: ids[name] for name in self.ids}}
        return bench.client.open(
            self.path.format(**ids),
            method=self.method,
            query_string={name: ids[name] for name in self.query},
            headers=bearer(token) | {"Accept": self.accept},
            json=body,
        )


def _requests(document: Mapping[str, Any]) -> Iterator[Request]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if not operation.get("security"):
                continue
            query = tuple(p["name"] for p in operation["parameters"] if p["in"] == "query" and p["name"] not in NEUTRAL)
            accepts = list(operation["responses"].get("200", {}).get("content", {"*/*": {}}))
            for fields, ids in _bodies(operation):
                for accept in accepts:
                    yield Request(method.upper(), path, query, fields, ids, accept)


def _bodies(operation: Mapping[str, Any]) -> list[tuple[dict[str, Any] | None, tuple[str, ...]]]:
    if "requestBody" not in operation:
        return [(None, ())]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
    return [*BODIES[schema]]


@dataclass
class Stage:
    """A front door, the owner's ids, and ids of the same form that never were."""

    bench: Bench
    theirs: dict[str, str]
    unknown: dict[str, str]
    calls: list[str]

    def answer(self, request: Request, token: str, ids: Mapping[str, str]) -> tuple[Any, ...]:
        """What a caller can tell: status, headers, text without its own words, and how the store was asked."""
        self.calls.clear()
        self.bench.door.stopping.set()  # streams end at once
        response = request.send(self.bench, token, ids)
        text = response.get_data(as_text=True)
        for name in request.names:
            text = text.replace(ids[name], f"<{name}>")
        headers = {k: v for k, v in response.headers.items() if k not in ("X-Request-ID", "Content-Length", "Location")}
        return response.status_code, headers, _without_made_ids(text), list(self.calls)


def _without_made_ids(text: str) -> str:
    """The text without what differs from any request to the next."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    for name in ("request_id", "run_id", "delivery", "delivery_id"):
        value.pop(name, None)
    return json.dumps(value, sort_keys=True)


@pytest.fixture
def stage(make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A session of the owner's with something in every state."""
    roles = [role.value for role in Role]
    tokens: list[dict[str, Any]] = [
        {"name": "same", "tenant": tenant, "roles": roles, "act_for_users": True, "sha256": token_hash(name)}
        for name, tenant in TENANTS.items()
    ]
    bench = make_bench(tokens=tokens, policy={"mutation_tools": [AUTO], "requester_may_approve": True})
    done = bench.post(
        "/api/trigger", plan((AUTO, {"n": 1}), session=SESSION, delivery_id="delivery-1"), as_=OWNER
    ).get_json()
    bench.finish(done)
    asked = bench.post("/api/trigger", plan((ASK, {"n": 1}), session=SESSION, delivery_id="d2"), as_=OWNER).get_json()
    turn = bench.get(f"/api/runs/{done['run_id']}", as_=OWNER).get_json()["logical_turn_id"]
    shard = int(turn[:2], 16)
    theirs = {
        "session_id": SESSION, "delivery_id": "delivery-1", "run_id": asked["run_id"], "logical_turn_id": turn,
        "approval_id": asked["calls"][0]["approval_id"], "mutation_id": done["calls"][0]["mutation_id"],
    }  # fmt: skip
    unknown = {
        "session_id": "session-2", "delivery_id": "delivery-9", "run_id": new_id(shard), "approval_id": new_id(shard),
        "logical_turn_id": new_id(shard), "mutation_id": "0" * 64,
    }  # fmt: skip
    calls: list[str] = []
    _note_calls(bench.door.store, calls, monkeypatch)
    for token in TENANTS:  # what a process asks once is asked now
        bench.post("/api/trigger", plan((AUTO, {"n": 0}), session="warm"), as_=token)
    return Stage(bench, theirs, unknown, calls)


def _note_calls(store: Any, calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run, command = store.run, store.command

    def noted_run(call: Any) -> Any:
        calls.append(call.script.name)
        return run(call)

    def noted_command(commands: Any) -> Any:
        calls.extend(str(one[0]) for one in commands)
        return command(commands)

    monkeypatch.setattr(store, "run", noted_run)
    monkeypatch.setattr(store, "command", noted_command)


def _matrix(stage: Stage) -> list[Request]:
    document = stage.bench.get("/openapi.json", as_=OWNER).get_json()
    return list(_requests(document))


def _of_the_owner(stage: Stage, taken: snapshot.Snapshot) -> dict[str, Any]:
    """Every key that can hold something of the owner's, without what any write changes for all."""
    shared = (":seq", ":fence", ":awake", ":ready", ":sessions:", ":expiry", "ml-rate")
    return {
        key: value
        for key, value in taken.items()
        if not any(part in key for part in shared) and ("acme" in key or _names(value, stage.theirs))
    }


def _names(value: Any, ids: Mapping[str, str]) -> bool:
    return any(one in repr(value) for name, one in ids.items() if name not in ("session_id", "delivery_id"))


def test_the_matrix_knows_every_route_and_parameter(stage: Stage) -> None:
    requests = _matrix(stage)
    document = stage.bench.get("/openapi.json", as_=OWNER).get_json()
    secured = {
        (method.upper(), path)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if operation.get("security")
    }
    assert {(request.method, request.path) for request in requests} == secured
    assert {name for request in requests for name in (*request.query, *request.ids)} <= stage.theirs.keys()


@pytest.mark.proves("C-42", "C-63", "C-82")
def test_foreign_ids_are_answered_as_unknown_ones(stage: Stage) -> None:
    url = stage.bench.door.store.settings.url
    with redis.Redis.from_url(url) as client:
        before = _of_the_owner(stage, snapshot.take(client))
        for request in _matrix(stage):
            foreign = stage.answer(request, STRANGER, stage.theirs)
            if request.path == "/metrics":  # counts requests, and names no tenant's things
                assert not any(one in foreign[2] for one in (*stage.theirs.values(), *TENANTS.values()))
                continue
            unknown = stage.answer(request, STRANGER, stage.unknown)
            assert foreign == unknown, request
            # A tenant that has nothing at all is told the same.
            assert stage.answer(request, EMPTY, stage.theirs)[:3] == foreign[:3], request
            assert _of_the_owner(stage, snapshot.take(client)) == before, request


@pytest.mark.proves("C-42", "C-63", "C-82")
def test_the_same_requests_of_the_owner_are_answered_otherwise(stage: Stage) -> None:
    """Else the test above would prove nothing."""
    told: dict[tuple[str, str], bool] = {}
    for request in sorted(_matrix(stage), key=lambda one: (one.method == "DELETE", one.path.endswith("cancel"))):
        if request.path in ("/api/trigger", "/metrics"):  # whose answers name nothing of a tenant's
            continue
        mine, other = (stage.answer(request, token, stage.theirs) for token in (OWNER, STRANGER))
        operation = (request.method, request.path)
        told[operation] = told.get(operation, False) or (mine[0] < 400 and mine != other)
    assert [operation for operation, differs in told.items() if not differs] == []
