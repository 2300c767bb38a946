"""C44: whatever comes as a body is answered as JSON, never 500, never HTML, and nothing is queued."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

import pytest

from tests.support import snapshot
from tests.support.case_tools import PAY
from tests.support.casework import CaseStack
from tests.support.stack import AGENT

GOOD = json.dumps({"session_id": "c44", "calls": [{"tool": PAY, "arguments": {"case": "c44"}}]}).encode()
BODIES = {
    "null": b"null",
    "array": b"[]",
    "string": b'"x"',
    "number": b"1",
    "empty": b"",
    "two": b'{"a":1}{"b":2}',
    "bom": b"\xef\xbb\xbf" + GOOD,
    "utf-16": GOOD.decode().encode("utf-16"),
    "utf-16-le": GOOD.decode().encode("utf-16-le"),
    "utf-32": GOOD.decode().encode("utf-32"),
    "latin-1": GOOD.replace(b"c44", b"c44\xe9"),
}
TYPES: list[tuple[str | None, int]] = [
    ("text/plain", 415),
    (None, 415),
    ("application/json; charset=utf-8", 202),
    ("application/vnd.x+json", 202),
    ("application/json; charset=utf-16", 415),
]
ACCEPTS = [("text/event-stream", 400), ("application/x-ndjson", 400), ("*/*", 400), ("image/png", 406)]
BIG = GOOD[:-1] + b" " * 2_000_000 + b"}"


def _send(
    cases: CaseStack, body: bytes, *, framing: bytes | None = None, kind: str | None = "application/json",
    accept: str | None = None, half_close: bool = False,
) -> tuple[int, str, Any]:  # fmt: skip
    """Status, media type and JSON of the answer to this body; `framing` replaces the Content-Length line."""
    head = f"POST /api/trigger HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {AGENT}\r\n".encode()
    head += f"Content-Type: {kind}\r\n".encode() if kind else b""
    head += f"Accept: {accept}\r\n".encode() if accept else b""
    head += framing if framing is not None else b"Content-Length: %d\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", cases.api.port), timeout=40) as connection:
        try:
            connection.sendall(head + b"\r\n" + body)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # answered before it was all sent
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.status, response.headers.get_content_type(), json.loads(response.read())


def _chunks(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


def _refused_without_a_trace(cases: CaseStack, status: int, *args: Any, **kwargs: Any) -> None:
    before = _runs(cases)
    answered, kind, problem = _send(cases, *args, **kwargs)
    assert (answered, kind) == (status, "application/problem+json")
    assert problem["status"] == status
    assert set(_runs(cases)) <= set(before)


def _runs(cases: CaseStack) -> list[str]:
    """Runs and sessions there are. Workers claim and sweep beside this test, so keys may go, and others may come."""
    return sorted(key for key in snapshot.take(cases.client) if ":run:" in key or ":session:" in key or "c44" in key)


@pytest.mark.proves("C-02")
@pytest.mark.parametrize("name", BODIES)
def test_what_is_no_request(cases: CaseStack, name: str) -> None:
    _refused_without_a_trace(cases, 400, BODIES[name])


@pytest.mark.parametrize(("kind", "status"), TYPES)
def test_media_types(cases: CaseStack, kind: str | None, status: int) -> None:
    if status == 202:
        answered, media, run = _send(cases, GOOD, kind=kind)
        assert (answered, media) == (202, "application/json")
        cases.api.ended(run["run_id"])
    else:
        _refused_without_a_trace(cases, status, GOOD, kind=kind)


@pytest.mark.proves("C-71")
def test_two_megabytes_with_a_length(cases: CaseStack) -> None:
    _refused_without_a_trace(cases, 413, BIG)


@pytest.mark.proves("C-71")
def test_two_megabytes_in_chunks(cases: CaseStack) -> None:
    _refused_without_a_trace(cases, 413, _chunks(BIG), framing=b"Transfer-Encoding: chunked\r\n")


def test_a_length_that_is_too_long(cases: CaseStack) -> None:
    longer = b"Content-Length: %d\r\n" % (len(GOOD) + 100)
    _refused_without_a_trace(cases, 400, GOOD, framing=longer, half_close=True)


def test_a_length_that_is_too_short(cases: CaseStack) -> None:
    _refused_without_a_trace(cases, 400, GOOD, framing=b"Content-Length: %d\r\n" % (len(GOOD) - 5))


@pytest.mark.parametrize("length", [b"-5", b"5, 5", b"+5", b"0x5", b""])
def test_a_length_that_is_none(cases: CaseStack, length: bytes) -> None:
    _refused_without_a_trace(cases, 400, GOOD, framing=b"Content-Length: " + length + b"\r\n")


@pytest.mark.parametrize(("accept", "status"), ACCEPTS)
def test_errors_before_a_stream_are_plain_json(cases: CaseStack, accept: str, status: int) -> None:
    _refused_without_a_trace(cases, status, b"null", accept=accept)
