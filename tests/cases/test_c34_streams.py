"""C34: a served stream lives as long as its reader, dies with it, and ends cleanly when the server is told to stop."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.case_tools import ASK
from tests.support.casework import CaseStack, follow
from tests.support.stack import AGENT, Api
from tests.support.wait import wait_until

IDLE_SECONDS = 45.0 if os.environ.get("MUTATION_LEDGER_TESTS") == "long" else 11.0
STREAMS = 60
# A reader that is killed: opens the streams, says so, and waits for its end.
_READER = """
import socket, sys, time
host, port, path, token, count = sys.argv[1:]
lines = [f"GET {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", "Accept: text/event-stream", "", ""]
held = []
for _ in range(int(count)):
    connection = socket.create_connection((host, int(port)))
    connection.sendall("\\r\\n".join(lines).encode())
    assert connection.recv(12) == b"HTTP/1.1 200"
    held.append(connection)
print("open", flush=True)
time.sleep(600)
"""


def _waiting_run(cases: CaseStack, session: str) -> dict[str, Any]:
    run: dict[str, Any] = cases.api.trigger(session, "d1", [(ASK, {"case": session})]).body
    return run


def _open_streams(api: Api) -> float:
    text = api.get("/metrics").body.decode()
    return float(next(line for line in text.splitlines() if line.startswith("mutation_ledger_open_streams")).split()[1])


@pytest.mark.proves("C-112")
def test_an_idle_stream_is_alive_and_beats(cases: CaseStack) -> None:
    run = _waiting_run(cases, "c34-idle")
    with follow(cases.api, run["run_id"], after=run["journal_cursor"]) as response:
        assert response.headers["Cache-Control"] == "no-cache"
        assert response.headers["X-Accel-Buffering"] == "no"
        last, longest, began = time.monotonic(), 0.0, time.monotonic()
        while time.monotonic() - began < IDLE_SECONDS:
            assert response.readline() == b":\n"
            assert response.readline() == b"\n"
            longest = max(longest, time.monotonic() - last)
            last = time.monotonic()
            if last - began > IDLE_SECONDS - 10.5:
                break
        assert longest <= 15
        cases.api.post(f"/api/runs/{run['run_id']}/cancel")
        rest = response.read().decode()
    assert "event: run_completed" in rest
    assert "event: error" not in rest


@pytest.mark.proves("C-71")
def test_sixty_dropped_readers_hurt_nobody(cases: CaseStack) -> None:
    run = _waiting_run(cases, "c34-drop")
    # Readers of other tests may have left a moment ago.
    wait_until(lambda: _open_streams(cases.api) == 0, 15, "earlier streams to end")
    base = len(cases.client.client_list())
    path = f"/api/runs/{run['run_id']}/events?follow=1"
    reader = subprocess.Popen(
        [sys.executable, "-c", _READER, "127.0.0.1", str(cases.api.port), path, AGENT, str(STREAMS)],
        stdout=subprocess.PIPE,
    )
    try:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"open\n"
        assert _open_streams(cases.api) == STREAMS
        began = time.monotonic()
        assert cases.api.get("/livez").status == cases.api.get("/readyz").status == 200
        assert time.monotonic() - began < 2
    finally:
        reader.kill()
        reader.wait(10)
        if reader.stdout is not None:
            reader.stdout.close()
    wait_until(lambda: _open_streams(cases.api) == 0, 30, "the streams of the dead reader to end")
    wait_until(lambda: len(cases.client.client_list()) <= base + 2, 30, "connections to be given back")
    cases.api.post(f"/api/runs/{run['run_id']}/cancel")


@pytest.mark.proves("C-34", "C-112")
def test_told_to_stop_it_ends_streams_and_readers_go_on_elsewhere(cases: CaseStack) -> None:
    run = _waiting_run(cases, "c34-term")
    leaving = cases.stack.add_front_door()
    process = cases.stack.front_doors[-1]
    with ExitStack() as stack:
        streams = [stack.enter_context(follow(leaving, run["run_id"])) for _ in range(10)]
        cursors = []
        for stream in streams:
            assert [stream.readline() for _ in range(2)] == [b"id: 1\n", b"event: run_started\n"]
            cursors.append(1)
        process.send_signal(signal.SIGTERM)
        rests = [stream.read().decode() for stream in streams]
        assert process.wait(20) == 0
    # What was under way was written whole, and nothing else was said.
    assert all(rest.endswith("\n\n") for rest in rests)
    assert all("run_completed" not in rest and "error" not in rest for rest in rests)
    with pytest.raises(OSError, match=r"."), socket.create_connection(("127.0.0.1", leaving.port), timeout=2):
        pass
    cases.api.approve(run["calls"][0]["approval_id"])
    for cursor in cursors:
        with follow(cases.api, run["run_id"], after=cursor) as response:
            lines = response.read().decode().splitlines()
        numbers = [int(line[4:]) for line in lines if line.startswith("id: ")]
        assert numbers[0] == cursor + 1
        assert "event: run_completed" in lines
