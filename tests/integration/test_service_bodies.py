"""What may come in at the front door: strict JSON, exact shapes, bounded sizes; anything else changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from tests.support.service import ASK, AUTO, Bench, bearer, plan


def _nested(levels: int) -> str:
    return '{"a":' * (levels - 1) + "{}" + "}" * (levels - 1)


def _call(arguments: str) -> bytes:
    return f'{{"session_id":"s1","calls":[{{"tool":"{AUTO}","arguments":{arguments}}}]}}'.encode()


def _stored(url: str) -> list[bytes]:
    with redis.Redis.from_url(url) as client:
        return [key for key in client.keys("ml:*") if not key.endswith((b":seq", b":fence"))]


GOOD = json.dumps(plan((AUTO, {"n": 1}))).encode()


@pytest.mark.proves("C-02")
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"   ", id="blank"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[]", id="array"),
        pytest.param(b'"x"', id="string"),
        pytest.param(GOOD + b"{}", id="two documents"),
        pytest.param(b"\xef\xbb\xbf" + GOOD, id="byte order mark"),
        pytest.param(GOOD.decode().encode("utf-16"), id="utf-16"),
        pytest.param(_call('{"s":"\xe9"}').decode().encode("latin-1"), id="latin-1"),
        pytest.param(_call('{"amount":NaN}'), id="nan"),
        pytest.param(_call('{"amount":Infinity}'), id="infinity"),
        pytest.param(_call('{"amount":1e400}'), id="overflow"),
        pytest.param(_call('{"amount":-1e999}'), id="negative overflow"),
        pytest.param(_call('{"a":[{"b":1e400}]}'), id="nested overflow"),
        pytest.param(_call('{"a":1,"a":2}'), id="same key twice"),
        pytest.param(_call('{"a":1,"\\u0061":2}'), id="same key by escape"),
        pytest.param(_call('{"x":{"y":[{"a":1,"a":2}]}}'), id="same key deep down"),
        pytest.param(b'{"delivery_id":"d1","delivery_id":"d2",' + GOOD[1:], id="same field twice"),
        pytest.param(_call('{"s":"\\ud800"}'), id="lone surrogate"),
        pytest.param(_call(_nested(65)), id="65 levels"),
        pytest.param(_call(_nested(300)), id="300 levels"),
        pytest.param(_call(_nested(100_000)), id="100000 levels"),
        pytest.param(_call("1" * 5000), id="5000 digits"),
        pytest.param(_call(json.dumps({"s": "x" * 262_144})), id="arguments too large"),
        pytest.param(_call("[1]"), id="arguments not an object"),
    ],
)
def test_bad_json_is_refused_and_leaves_nothing(bench: Bench, store_url: str, body: bytes) -> None:
    reply = bench.raw(body)
    assert reply.status_code == 400
    assert reply.content_type == "application/problem+json"
    assert reply.get_json()["code"] == "invalid_request"
    assert _stored(store_url) == []


@pytest.mark.proves("C-02")
@pytest.mark.parametrize("arguments", [_nested(64), '{"n":1e-400}', '{"n":' + "9" * 4000 + "}"])
def test_the_edge_of_what_is_allowed(bench: Bench, arguments: str) -> None:
    assert bench.raw(_call(arguments)).status_code == 202


@pytest.mark.proves("C-02")
def test_numbers_reach_the_approver_exactly(bench: Bench) -> None:
    exact = '{"big":18446744073709551617,"float":1.0,"small":-9223372036854775809}'
    one = bench.raw(_call(exact).replace(AUTO.encode(), ASK.encode())).get_json()
    other = bench.raw(_call(exact.replace("617", "616")).replace(AUTO.encode(), ASK.encode())).get_json()
    assert one["calls"][0]["mutation_id"] != other["calls"][0]["mutation_id"]
    inbox = bench.get("/api/approvals", as_="bob").text
    assert f'"arguments":{exact}' in inbox


@pytest.mark.parametrize(
    "kind",
    ["text/plain", None, "application/json; charset=latin-1", "application/xml", "multipart/form-data", "jsonl+json"],
)
def test_other_types_are_refused(bench: Bench, store_url: str, kind: str | None) -> None:
    reply = bench.raw(GOOD, kind)
    assert (reply.status_code, reply.get_json()["code"]) == (415, "unsupported_media_type")
    assert _stored(store_url) == []


def test_a_compressed_body_is_refused(bench: Bench) -> None:
    assert bench.post("/api/trigger", plan((AUTO, {})), Content_Encoding="gzip").status_code == 415


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/vnd.x+json", "Application/JSON"])
def test_json_by_any_of_its_names(bench: Bench, kind: str) -> None:
    assert bench.raw(GOOD, kind).status_code == 202


@pytest.mark.proves("C-71")
def test_a_large_body_is_refused_with_or_without_a_length(make_bench: Any) -> None:
    bench = make_bench(service={"max_body_bytes": 400})
    most = json.dumps(plan((AUTO, {"s": "x" * 400}))).encode()
    most = most.replace(b"x" * (len(most) - 400), b"", 1)
    assert len(most) == 400
    assert bench.raw(most).status_code == 202
    for body, environ in [
        (most + b" ", {}),
        (most + b" " * 5000, {}),
        (most + b" ", {"wsgi.input_terminated": True, "CONTENT_LENGTH": None}),
        (most + b" " * 5000, {"wsgi.input_terminated": True, "CONTENT_LENGTH": None}),
    ]:
        reply = bench.client.post(
            "/api/trigger",
            data=body,
            content_type="application/json",
            headers=bearer("host"),
            environ_overrides=environ,
        )
        assert (reply.status_code, reply.get_json()["code"]) == (413, "body_too_large")


@pytest.mark.proves("C-64")
@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"session_id": None}, "session_id"),
        ({"session_id": "with space"}, "session_id"),
        ({"session_id": "s" * 129}, "session_id"),
        ({"session_id": "s1\n"}, "session_id"),
        ({"delivery_id": 7}, "delivery_id"),
        ({"delivery_id": ""}, "delivery_id"),
        ({"delivery_id": "d" * 129}, "delivery_id"),
        ({"logical_turn_id": 7}, "logical_turn_id"),
        ({"logical_turn_id": "t" * 129}, "logical_turn_id"),
        ({"agent": "a b"}, "agent"),
        ({"user": "a\nb"}, "user"),
        ({"on_error": "retry"}, "on_error"),
        ({"deadline_seconds": "5"}, "deadline_seconds"),
        ({"deadline_seconds": True}, "deadline_seconds"),
        ({"deadline_seconds": 0}, "deadline_seconds"),
        ({"surprise": 1}, "surprise"),
        ({"calls": []}, "calls"),
        ({"calls": None}, "calls"),
        ({"calls": [{"tool": AUTO, "arguments": {}}] * 33}, "calls"),
        ({"calls": [{"tool": AUTO}]}, "calls.0.arguments"),
        ({"calls": [{"tool": "no spaces", "arguments": {}}]}, "calls.0.tool"),
        ({"calls": [{"tool": AUTO, "arguments": "s3cret"}]}, "calls.0.arguments"),
        ({"handler": "h"}, "calls and handler"),
        ({"text": "t"}, "text and input"),
    ],
)
def test_wrong_shapes_name_the_field_and_never_the_value(bench: Bench, change: dict[str, Any], where: str) -> None:
    reply = bench.post("/api/trigger", plan((AUTO, {"n": 1})) | change)
    problem = reply.get_json()
    assert (reply.status_code, problem["code"]) == (400, "invalid_request")
    assert where in problem["detail"]
    assert "s3cret" not in reply.text


@pytest.mark.proves("C-64")
@pytest.mark.parametrize("query", ["wait=-1", "wait=61", "wait=x", "wait=nan", "wait=1&wait=2", "other=1"])
def test_wrong_query_strings(bench: Bench, query: str) -> None:
    assert bench.post(f"/api/trigger?{query}", plan((AUTO, {}))).status_code == 400


def test_problems_have_one_shape_everywhere(bench: Bench) -> None:
    for reply, status, code in [
        (bench.get("/nowhere"), 404, "not_found"),
        (bench.get("//api//trigger"), 404, "not_found"),
        (bench.get("/api/trigger"), 405, "method_not_allowed"),
        (bench.client.options("/api/trigger"), 405, "method_not_allowed"),
        (bench.client.get("/api/runs/x"), 401, "unauthorized"),
    ]:
        problem = reply.get_json()
        assert reply.status_code == status
        assert reply.content_type == "application/problem+json"
        assert problem["status"] == status
        assert problem["code"] == code
        assert problem["type"].endswith(code)
        assert problem["request_id"] == reply.headers["X-Request-ID"]
    assert bench.get("/api/trigger").headers["Allow"] == "POST"


def test_a_crash_is_a_problem_without_inner_text(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("s3cret")

    monkeypatch.setattr("service.routes.runs.get_run", crash)
    reply = bench.get("/api/runs/" + "0" * 34)
    assert (reply.status_code, reply.get_json()["code"]) == (500, "internal_error")
    assert "s3cret" not in reply.text


def test_every_answer_carries_security_headers_and_the_callers_request_id(bench: Bench) -> None:
    for reply in (bench.get("/livez", X_Request_ID="req-1"), bench.get("/nowhere", X_Request_ID="req-1")):
        assert reply.headers["X-Request-ID"] == "req-1"
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Cache-Control"] == "no-store"
    assert bench.get("/livez", X_Request_ID="no spaces please").headers["X-Request-ID"] != "no spaces please"
