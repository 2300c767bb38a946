"""Requests made from the served OpenAPI document: no crash, no undocumented status, media type or shape."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.service import ASK, AUTO, Bench, bearer

LONG = os.environ.get("MUTATION_LEDGER_TESTS") == "long"
EXAMPLES = 2_000 if LONG else 200
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    allow_header_conformance,
]
TOKENS = {"/api/approvals": "bob", "/api/sessions": "carol"}
OPERATIONS = (
    "POST /api/trigger",
    "GET /api/runs/{run_id}",
    "GET /api/runs/{run_id}/events",
    "POST /api/runs/{run_id}/cancel",
    "GET /api/approvals",
    "GET /api/approvals/{approval_id}",
    "POST /api/approvals/{approval_id}",
    "GET /api/mutation-outcomes",
    "GET /api/mutation-events",
    "GET /api/mutation-state",
    "POST /api/mutation-metadata",
    "DELETE /api/sessions/{session_id}",
    "GET /api/contracts/mutation_outcome_v1.json",
    "GET /openapi.json",
    "GET /livez",
    "GET /readyz",
    "GET /metrics",
)
# Where nothing is given, nothing can be given wrongly.
WITHOUT_INPUT = OPERATIONS[-5:]
CASES = [(operation, GenerationMode.POSITIVE) for operation in OPERATIONS]
CASES += [(operation, GenerationMode.NEGATIVE) for operation in OPERATIONS if operation not in WITHOUT_INPUT]
ACCEPTS = ("application/json", "application/x-ndjson", "text/event-stream", "*/*", "text/html;q=0.1", "")


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    """A front door whose waits and streams end at once, with something in every state."""
    bench = make_bench()
    bench.door.stopping.set()
    return bench


def _known_ids(bench: Bench) -> dict[str, str]:
    """Ids of things that are there, by parameter."""
    done = bench.trigger((AUTO, {"n": 1}), delivery_id="d1")
    bench.finish(done)
    asked = bench.trigger((ASK, {"n": 1}), delivery_id="d2")
    ended = bench.run(done["run_id"])
    return {
        "session_id": "s1",
        "delivery_id": "d1",
        "run_id": asked["run_id"],
        "approval_id": asked["calls"][0]["approval_id"],
        "logical_turn_id": ended["logical_turn_id"],
        "mutation_id": ended["calls"][0]["mutation_id"],
    }


def _with_known(part: Any, ids: Mapping[str, str], dice: random.Random) -> Any:
    """Some ids of a generated part replaced by ids that are there."""
    if not isinstance(part, Mapping):
        return part
    return {name: ids[name] if name in ids and dice.random() < 0.7 else value for name, value in part.items()}


@pytest.mark.proves("C-64")
@pytest.mark.parametrize(("operation", "mode"), CASES, ids=[f"{mode.value} {operation}" for operation, mode in CASES])
def test_every_answer_is_as_documented(bench: Bench, operation: str, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_wsgi("/openapi.json", bench.app)
    method, path = operation.split()
    described = schema[path][method]
    token = next((name for prefix, name in TOKENS.items() if path.startswith(prefix)), "host")
    ids = _known_ids(bench)
    cases = described.as_strategy(generation_mode=mode)

    @given(case=cases, seed=st.integers(0, 2**32), accept=st.sampled_from(ACCEPTS))
    @settings(
        max_examples=max(1, EXAMPLES // len(CASES)),
        deadline=None,
        derandomize=not LONG,
        phases=[Phase.generate],
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def check(case: Any, seed: int, accept: str) -> None:
        dice = random.Random(seed)
        case.path_parameters = _with_known(case.path_parameters, ids, dice)
        case.query = _with_known(case.query, ids, dice)
        case.body = _with_known(case.body, ids, dice)
        headers = {**(case.headers or {}), **bearer(token)}
        if accept:
            headers["Accept"] = accept
        case.headers = headers
        response = case.call()
        case.validate_response(response, checks=CHECKS)

    check()


def test_the_list_is_the_documents(bench: Bench) -> None:
    schema = schemathesis.openapi.from_wsgi("/openapi.json", bench.app)
    listed: set[Any] = {result.ok().label for result in schema.get_all_operations()}  # type: ignore[union-attr]
    # The document does not count itself.
    assert listed | {"GET /openapi.json"} == set(OPERATIONS)
