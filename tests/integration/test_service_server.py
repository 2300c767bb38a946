"""The front door as it is served: one gunicorn process, many waiters and streams, malformed HTTP, stops."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.service import ASK, AUTO, Bench, ServeProcess, bearer, frames_of, plan, subscribers
from tests.support.wait import wait_until

WAITERS = 40


def _raw(process: ServeProcess, data: bytes) -> tuple[int, str, dict[str, Any]]:
    """Status, media type and JSON of the answer to these very bytes."""
    with socket.create_connection(("127.0.0.1", process.port), timeout=10) as connection:
        connection.sendall(data)
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.status, response.headers.get_content_type(), json.loads(response.read())


def test_forty_waiters_share_one_process_and_one_subscriber(
    serve: Callable[..., ServeProcess], bench: Bench, store_url: str
) -> None:
    process = serve()
    replies: list[tuple[int, Any]] = []
    body = plan((AUTO, {"n": 1}), delivery_id="d1")

    def ask() -> None:
        replies.append(process.request("POST", "/api/trigger?wait=30", body))

    threads = [threading.Thread(target=ask) for _ in range(WAITERS)]
    for thread in threads:
        thread.start()
    waiting = 'mutation_ledger_admissions_total{result="attached"}'
    wait_until(lambda: f"{waiting} {WAITERS - 1}.0" in _metrics(process), 20, "all waiters to be admitted")
    assert process.request("GET", "/livez")[0] == 200
    with redis.Redis.from_url(store_url) as admin:
        wait_until(lambda: subscribers(admin), 10, "the subscriber to connect")
        assert len(subscribers(admin)) == 1
    bench.finish(bench.post("/api/trigger", body).get_json())
    for thread in threads:
        thread.join(20)
    assert [(status, run["status"]) for status, run in replies] == [(200, "completed")] * WAITERS
    assert len({run["run_id"] for _, run in replies}) == 1


def _metrics(process: ServeProcess) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=10)
    connection.request("GET", "/metrics", headers=bearer("host"))
    text = connection.getresponse().read().decode()
    connection.close()
    return text


@pytest.mark.proves("C-71")
def test_a_chunked_body_is_bounded_too(serve: Callable[..., ServeProcess]) -> None:
    process = serve(service={"max_body_bytes": 1000})
    head = b"POST /api/trigger HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer host\r\nContent-Type: application/json\r\n"
    good = json.dumps(plan((AUTO, {"n": 1}))).encode()

    def chunked(data: bytes) -> bytes:
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%s\r\n" % (len(data), data) + b"0\r\n\r\n"

    assert _raw(process, chunked(good))[0] == 202
    assert _raw(process, chunked(good.ljust(1000)))[0] == 202
    for size in (1001, 5000):
        status, kind, problem = _raw(process, chunked(good.ljust(size)))
        assert (status, kind, problem["code"]) == (413, "application/problem+json", "body_too_large")


HEAD = b"POST /api/trigger HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer host\r\nContent-Type: application/json\r\n"
MALFORMED = [
    (b"POST /api/trigger HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", (400, "invalid_request")),
    (b"POST /api/trigger HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", (400, "invalid_request")),
    (b"nonsense\r\n\r\n", (400, "invalid_request")),
    (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", (414, "uri_too_long")),
    (b"GET / HTTP/1.1\r\nHost: x\r\nX-S3cret: " + b"x" * 70000 + b"\r\n\r\n", (431, "headers_too_large")),
    (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: s3cret\r\n\r\n", (501, "not_implemented")),
    (HEAD + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n", (400, "invalid_request")),
]


def test_malformed_http_is_refused_as_json(serve: Callable[..., ServeProcess]) -> None:
    process = serve()
    for data, expected in MALFORMED:
        status, kind, problem = _raw(process, data)
        assert (status, kind, problem["code"]) == (expected[0], "application/problem+json", expected[1])
    with socket.create_connection(("127.0.0.1", process.port), timeout=10) as connection:
        connection.sendall(HEAD + b"Content-Length: 500\r\n\r\n{}")
        connection.shutdown(socket.SHUT_WR)
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert (response.status, json.loads(response.read())["code"]) == (400, "invalid_request")
    assert process.request("GET", "/livez")[0] == 200
    with socket.create_connection(("127.0.0.1", process.port), timeout=10) as connection:
        connection.sendall(b"HEAD /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 200 OK\r\n")
    logged = process.log.read_text()
    assert "request_not_served" in logged
    assert "s3cret" not in logged.lower()
    assert "Bearer" not in logged


@pytest.mark.proves("C-34")
def test_a_warm_stop_ends_streams_waits_and_idle_connections_at_once(
    serve: Callable[..., ServeProcess], bench: Bench
) -> None:
    process = serve()
    waited: list[tuple[int, Any]] = []
    waiter = threading.Thread(
        target=lambda: waited.append(
            process.request("POST", "/api/trigger?wait=60", plan((ASK, {"n": 0}), session="w"))
        )
    )
    with ExitStack() as stack:
        idle = http.client.HTTPConnection("127.0.0.1", process.port, timeout=10)
        stack.callback(idle.close)
        idle.request("GET", "/livez")
        idle.getresponse().read()
        waiter.start()
        streams = []
        for n in range(10):
            streamed = plan((ASK, {"n": n}), session=f"s{n}")
            response = stack.enter_context(process.stream("POST", "/api/trigger", streamed, Accept="text/event-stream"))
            frames = frames_of(response)
            streams.append((frames, [next(frames)["event"] for _ in range(2)]))
        waiting = 'mutation_ledger_admissions_total{result="new"} 11.0'
        wait_until(lambda: waiting in _metrics(process), 10, "the waiter to be admitted")
        began = time.monotonic()
        process.terminate()
        assert process.process.wait(20) == 0
        assert time.monotonic() - began < 10
        for frames, seen in streams:
            assert seen == ["run_started", "approval_requested"]
            assert list(frames) == []
        waiter.join(5)
    assert [(status, run["status"]) for status, run in waited] == [(202, "still_running")]
    run_id = waited[0][1]["run_id"]
    assert bench.get(f"/api/runs/{run_id}/events?after=1").get_json()["events"][0]["type"] == "approval_requested"


def test_an_open_stream_is_released_when_its_reader_leaves(serve: Callable[..., ServeProcess], bench: Bench) -> None:
    process = serve(service={"max_streams": 1})
    body = plan((ASK, {"n": 1}))
    with process.stream("POST", "/api/trigger", body, Accept="text/event-stream") as response:
        frames = frames_of(response)
        run = json.loads(next(frames)["data"])
        approval = json.loads([next(frames)][0]["data"])["approval_id"]
        status, problem = process.request("GET", f"/api/runs/{run['run_id']}/events", Accept="text/event-stream")
        assert (status, problem["code"]) == (503, "too_many_streams")
    # A reader that left is noticed at the next write.
    bench.post(f"/api/approvals/{approval}", {"decision": "approve"}, as_="bob")
    bench.finish(run)
    wait_until(lambda: "mutation_ledger_open_streams 0.0" in _metrics(process), 10, "the stream to be released")


def test_processes_carry_the_projects_name_and_log_json_without_what_callers_send(
    serve: Callable[..., ServeProcess],
) -> None:
    process = serve()
    pids = [process.process.pid]
    pids += map(int, Path(f"/proc/{pids[0]}/task/{pids[0]}/children").read_text().split())
    assert len(pids) == 2
    for pid in pids:
        assert Path(f"/proc/{pid}/cmdline").read_text().startswith("mutation-ledger serve")
    secret = {"s3cret-argument": "s3cret-value"}
    process.request("POST", "/api/trigger", plan(("mcp__d__touch", secret), text=None))
    process.request("POST", "/api/trigger", plan((AUTO, secret), surprise="s3cret-field"))
    process.request("GET", "/api/runs/s3cret-path?q=s3cret-query")
    process.request("GET", "/livez", as_="s3cret-token")
    process.stop()
    log = process.log.read_text()
    lines = [json.loads(line) for line in log.splitlines()]
    assert all("event" in line and "level" in line for line in lines)
    assert "unprotected_mcp_tool" in log
    assert "s3cret" not in log
