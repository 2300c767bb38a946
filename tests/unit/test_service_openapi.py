"""The OpenAPI document: valid, complete, and true of the problems the service can give."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest
from flask_openapi.openapi import OpenAPI
from openapi_spec_validator import validate

from ledger.config import Config, Role
from ledger.store.scripts import SCRIPTS
from service.app import create_app
from service.problems import PROBLEMS, code_of_status, problem
from tests.support.service import CountingWaker

CONTRACT = {
    ("POST", "/api/trigger"): Role.TRIGGER,
    ("GET", "/api/runs/{run_id}"): Role.TRIGGER,
    ("GET", "/api/runs/{run_id}/events"): Role.TRIGGER,
    ("POST", "/api/runs/{run_id}/cancel"): Role.TRIGGER,
    ("GET", "/api/approvals"): Role.APPROVE,
    ("GET", "/api/approvals/{approval_id}"): Role.APPROVE,
    ("POST", "/api/approvals/{approval_id}"): Role.APPROVE,
    ("GET", "/api/mutation-outcomes"): Role.READ,
    ("GET", "/api/mutation-events"): Role.READ,
    ("GET", "/api/mutation-state"): Role.HOST,
    ("POST", "/api/mutation-metadata"): Role.HOST,
    ("DELETE", "/api/sessions/{session_id}"): Role.ERASE,
    ("GET", "/api/contracts/mutation_outcome_v1.json"): None,
    ("GET", "/openapi.json"): None,
    ("GET", "/livez"): None,
    ("GET", "/readyz"): None,
    ("GET", "/metrics"): Role.OPS,
}

CALLED = (
    "admit_delivery",
    "decide_approval",
    "read_approvals",
    "read_run",
    "cancel_run",
    "read_session",
    "attach_metadata",
)


@pytest.fixture
def app(tmp_path: Path) -> OpenAPI:
    config = Config.model_validate({"redis": {"url": "redis://127.0.0.1:1"}})
    return create_app(config, waker=CountingWaker(), data_dir=tmp_path)


@pytest.fixture
def document(app: OpenAPI) -> dict[str, Any]:
    return cast("dict[str, Any]", app.test_client().get("/openapi.json").get_json())


def test_the_document_is_valid_openapi_3_1(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    validate(document)


def test_every_route_is_described_and_nothing_else(app: OpenAPI, document: dict[str, Any]) -> None:
    routes = {
        (method, re.sub(r"<(?:[^:>]+:)?([^>]+)>", r"{\1}", rule.rule))
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    described = {(m.upper(), path) for path, item in document["paths"].items() for m in item}
    assert routes == described == CONTRACT.keys()


def test_each_route_wants_the_role_of_the_contract(app: OpenAPI, document: dict[str, Any]) -> None:
    client = app.test_client()
    for (method, path), role in CONTRACT.items():
        operation = document["paths"][path][method.lower()]
        assert operation.get("security") == (None if role is None else [{"bearer": []}])
        if role is not None:
            assert f"`{role}`" in operation["description"]
            reply = client.open(path.replace("{", "").replace("}", ""), method=method)
            assert reply.status_code == 401


def test_every_problem_is_described_with_its_status(document: dict[str, Any]) -> None:
    described = set()
    for item in document["paths"].values():
        for operation in item.values():
            for status, response in operation["responses"].items():
                if int(status) < 400:
                    continue
                assert set(response["content"]) == {"application/problem+json"}
                codes = response["description"].split(", ")
                assert {PROBLEMS[code].status for code in codes} == {int(status)}
                described |= set(codes)
    # What no single route owns: paths, methods and HTTP that never reached one; and what arguments_invalid awaits.
    outside = {"method_not_allowed", "uri_too_long", "headers_too_large", "not_implemented", "config_error"}
    assert PROBLEMS.keys() - described <= outside | {"arguments_invalid"}
    assert set(document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"]) == PROBLEMS.keys()


@pytest.mark.parametrize(
    "script",
    [
        "admit_delivery",
        "decide_approval",
        "read_approvals",
        "read_run",
        "cancel_run",
        "read_session",
        "attach_metadata",
    ],
)
def test_whatever_a_script_refuses_has_a_status(script: str) -> None:
    header = "".join(line for line in SCRIPTS[script].source.splitlines(keepends=True) if line.startswith("--"))
    errors = re.search(r"Errors: (.*?)(?:-- Guarantees|\Z)", header, re.DOTALL)
    assert errors is not None
    codes = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", errors[1])) - {"STORE_CHANGED"}
    assert "STORE_WENT_BACK" in codes
    assert {code.lower() for code in codes} <= PROBLEMS.keys()


@pytest.mark.proves("C-26")
def test_every_503_and_429_says_when_to_come_back() -> None:
    for code, kind in PROBLEMS.items():
        assert (kind.retry_after is not None) == (kind.status in (429, 503)), code


def test_unknown_codes_and_statuses_show_nothing_inner() -> None:
    assert problem("outcome_unreadable", "x")["code"] == "internal_error"
    assert (code_of_status(418), code_of_status(502), code_of_status(404)) == (
        "invalid_request",
        "internal_error",
        "not_found",
    )
