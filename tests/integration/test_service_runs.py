"""Runs: their state, cancelling, and the journal as JSON, NDJSON and server-sent events."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from ledger.states import MutationStatus
from service import following
from tests.support.service import ASK, AUTO, PLAIN, Bench, plan, sse

EVENT_FIELDS = {"n", "type", "at", "run_id"}


def _code(reply: Any) -> tuple[int, str]:
    return reply.status_code, reply.get_json()["code"]


def _lines(reply: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in reply.text.splitlines()]


def _ended(bench: Bench) -> dict[str, Any]:
    """A run with one call approved by Bob and completed, one failed."""
    run = bench.trigger((ASK, {"n": 1}), (AUTO, {"n": 2}), delivery_id="d1")
    bench.approve(run)
    claimed = bench.settle(bench.begin(run))
    bench.settle(claimed, MutationStatus.FAILED)
    return bench.run(run["run_id"])


@pytest.mark.parametrize("path", ["/api/runs/{}", "/api/runs/{}/events", "/api/runs/{}/cancel"])
def test_another_tenants_run_is_answered_as_unknown(bench: Bench, path: str) -> None:
    run = bench.trigger((ASK, {"n": 1}))
    ask = bench.post if path.endswith("cancel") else bench.get
    replies = [ask(path.format(run["run_id"]), as_="other")]
    replies += [ask(path.format(unknown)) for unknown in ("0" * 34, "ff" * 17, "x", "0" * 33 + "\n")]
    for reply in replies:
        assert _code(reply) == (404, "not_found")
    assert bench.run(run["run_id"])["status"] == "waiting_for_approval"
    assert ask(path.format(run["run_id"]), as_="bob").status_code == 403


@pytest.mark.proves("C-55")
def test_cancel_before_anything_began(bench: Bench) -> None:
    run = bench.trigger((ASK, {"n": 1}))
    path = f"/api/runs/{run['run_id']}/cancel"
    for _ in range(2):
        reply = bench.post(path)
        shown = reply.get_json()
        assert (reply.status_code, shown["status"], shown["calls"][0]["status"]) == (200, "cancelled", "cancelled")
        assert "run_status" not in shown
    assert bench.get("/api/approvals", as_="bob").get_json()["approvals"] == []


@pytest.mark.proves("C-55")
def test_cancel_while_a_call_is_out_and_after_the_end(bench: Bench) -> None:
    run = bench.trigger((AUTO, {"n": 1}), (AUTO, {"n": 2}))
    claimed = bench.begin(run)
    path = f"/api/runs/{run['run_id']}/cancel"
    reply = bench.post(path)
    shown = reply.get_json()
    assert (reply.status_code, shown["status"], shown["run_status"]) == (202, "cancelling", "running")
    assert [call["status"] for call in shown["calls"]] == ["running", "cancelled"]
    bench.settle(claimed)
    assert bench.run(run["run_id"])["status"] == "cancelled"
    assert bench.post(path).get_json()["status"] == "cancelled"
    assert _code(bench.post(f"/api/runs/{_ended(bench)['run_id']}/cancel")) == (409, "run_ended")


@pytest.mark.proves("C-112")
def test_the_journal_numbers_what_happened_and_spells_it_out(bench: Bench) -> None:
    run = _ended(bench)
    path = f"/api/runs/{run['run_id']}/events"
    page = bench.get(path).get_json()
    events = page["events"]
    assert [event["n"] for event in events] == list(range(1, page["next"] + 1))
    assert all(event.keys() >= EVENT_FIELDS and event["run_id"] == run["run_id"] for event in events)
    assert [event["type"] for event in events] == [
        "run_started", "approval_requested", "approval_decided",
        "tool_execution_started", "mutation_outcome", "tool_result",
        "tool_execution_started", "mutation_outcome", "tool_result", "run_failed",
    ]  # fmt: skip
    decided, outcome, result, ended = events[2], events[4], events[5], events[-1]
    call = run["calls"][0]
    assert (decided["decision"], decided["approval_id"], decided["index"]) == ("approved", call["approval_id"], 0)
    assert (outcome["outcome"], outcome["mutation_id"]) == (call["outcome"], call["mutation_id"])
    assert outcome["mutation_revision"] == 2
    assert result["status"] == "completed"
    assert events[8]["status"] == "failed"
    assert ended["status"] == "failed"
    assert bench.get(f"{path}?after=8").get_json() == {"events": events[8:], "next": 10}
    assert bench.get(path, Last_Event_ID="8").get_json()["events"] == events[8:]
    assert bench.get(f"{path}?after=9", Last_Event_ID="8").get_json()["events"] == events[9:]
    assert bench.get(f"{path}?after=10").get_json() == {"events": [], "next": 10}


@pytest.mark.proves("C-62", "C-112")
def test_ndjson_ends_with_done_and_sse_with_run_completed(bench: Bench) -> None:
    run = _ended(bench)
    path = f"/api/runs/{run['run_id']}/events"
    events = bench.get(path).get_json()["events"]
    for query in ("", "?follow=1"):
        lines = _lines(bench.get(path + query, Accept="application/x-ndjson"))
        assert lines[:-1] == events
        assert lines[-1] == {"n": 10, "type": "done"} | run
        frames = sse(bench.get(path + query, Accept="text/event-stream").text)
        assert [frame["event"] for frame in frames] == [*(event["type"] for event in events), "run_completed"]
        assert [int(frame["id"]) for frame in frames] == [*range(1, 11), 10]
        assert [json.loads(frame["data"]) for frame in frames[:-1]] == events
        assert json.loads(frames[-1]["data"]) == {"n": 10, "type": "run_completed"} | run
    assert run["logical_turn_id"]


@pytest.mark.proves("C-112")
def test_a_completed_run_is_told_once_and_again_to_whoever_reconnects(bench: Bench) -> None:
    run = bench.trigger((AUTO, {"n": 1}))
    bench.finish(run)
    path = f"/api/runs/{run['run_id']}/events?follow=1"
    frames = sse(bench.get(path, Accept="text/event-stream").text)
    assert [frame["event"] for frame in frames].count("run_completed") == 1
    last = frames[-1]
    assert json.loads(last["data"])["status"] == "completed"
    assert sse(bench.get(path, Accept="text/event-stream", Last_Event_ID=last["id"]).text) == [last]


@pytest.mark.proves("C-112")
def test_a_reader_that_reconnects_after_every_event_misses_none(bench: Bench) -> None:
    run = _ended(bench)
    path = f"/api/runs/{run['run_id']}/events"
    seen, after = [], 0
    while after < 10:
        frame = sse(bench.get(path, Accept="text/event-stream", Last_Event_ID=str(after)).text)[0]
        after = int(frame["id"])
        seen.append(json.loads(frame["data"]))
    assert seen == bench.get(path).get_json()["events"]


@pytest.mark.proves("C-112")
def test_reading_stops_at_what_is_stored_unless_it_follows(bench: Bench) -> None:
    run = bench.trigger((ASK, {"n": 1}))
    path = f"/api/runs/{run['run_id']}/events"
    lines = _lines(bench.get(path, Accept="application/x-ndjson"))
    assert [line["type"] for line in lines] == ["run_started", "approval_requested"]
    assert bench.get(f"{path}?after=2", Accept="application/x-ndjson").text == ""


@pytest.mark.parametrize("query", ["after=-1", "after=x", "after=1.5", "after=" + "9" * 16, "follow=2", "more=1"])
def test_bad_cursors(bench: Bench, query: str) -> None:
    run = bench.trigger((ASK, {"n": 1}))
    assert _code(bench.get(f"/api/runs/{run['run_id']}/events?{query}")) == (400, "invalid_request")


def test_bad_last_event_id_and_following_in_json(bench: Bench) -> None:
    path = f"/api/runs/{bench.trigger((ASK, {'n': 1}))['run_id']}/events"
    assert _code(bench.get(path, Last_Event_ID="x")) == (400, "invalid_request")
    assert _code(bench.get(f"{path}?follow=1")) == (400, "invalid_request")
    assert _code(bench.get(path, Accept="image/png")) == (406, "not_acceptable")


@pytest.mark.proves("C-62")
@pytest.mark.parametrize(
    ("accept", "closing"), [("application/x-ndjson", "done"), ("text/event-stream", "run_completed")]
)
def test_a_trigger_that_streams_tells_each_step_and_the_run(bench: Bench, accept: str, closing: str) -> None:
    reply = bench.client.post(
        "/api/trigger",
        json=plan((ASK, {"n": 1})),
        headers={"Authorization": "Bearer host", "Accept": accept},
    )
    assert (reply.status_code, reply.mimetype) == (200, accept)
    assert reply.headers["Cache-Control"] == "no-cache"
    assert reply.headers["X-Accel-Buffering"] == "no"
    parts = iter(reply.response)
    first, second = _value(next(parts)), _value(next(parts))
    assert (first["type"], second["type"]) == ("run_started", "approval_requested")
    bench.approve({"calls": [{"approval_id": second["approval_id"]}]})
    assert _value(next(parts))["decision"] == "approved"
    bench.finish(first)
    rest = [_value(part) for part in parts]
    assert rest[-1]["type"] == closing
    assert rest[-1]["logical_turn_id"] == rest[-1]["calls"][0]["outcome"]["logical_turn_id"]
    assert rest[-1]["calls"][0]["outcome"]["status"] == "completed"


def test_a_redelivery_streams_from_the_start(bench: Bench) -> None:
    bench.finish(bench.trigger((PLAIN, {}), delivery_id="d1"))
    run = bench.trigger((ASK, {}), delivery_id="d2")
    reply = bench.client.post(
        "/api/trigger",
        json=plan((ASK, {}), delivery_id="d2"),
        headers={"Authorization": "Bearer host", "Accept": "application/x-ndjson"},
    )
    assert _value(next(iter(reply.response)))["run_id"] == run["run_id"]
    reply.close()


@pytest.mark.proves("C-71")
def test_streams_are_bounded_and_a_refused_one_admits_nothing(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(service={"max_streams": 1})
    headers = {"Authorization": "Bearer host", "Accept": "text/event-stream"}
    held = bench.client.post("/api/trigger", json=plan((ASK, {"n": 1})), headers=headers)
    assert "mutation_ledger_open_streams 1.0" in bench.get("/metrics").text
    full = bench.client.post("/api/trigger", json=plan((ASK, {"n": 2})), headers=headers)
    assert _code(full) == (503, "too_many_streams")
    assert int(full.headers["Retry-After"]) > 0
    assert len(bench.get("/api/approvals", as_="bob").get_json()["approvals"]) == 1
    held.close()
    held.close()
    again = bench.client.post("/api/trigger", json=plan((ASK, {"n": 1})), headers=headers)
    assert again.status_code == 200
    again.close()
    refused = bench.client.post("/api/trigger", json=plan((ASK, {}), logical_turn_id="0" * 34), headers=headers)
    assert _code(refused) == (409, "logical_turn_unavailable")
    assert "mutation_ledger_open_streams 0.0" in bench.get("/metrics").text


@pytest.mark.parametrize(
    ("accept", "beat"), [("application/x-ndjson", '{"type":"heartbeat"}\n'), ("text/event-stream", ":\n\n")]
)
def test_a_quiet_stream_is_kept_alive(bench: Bench, monkeypatch: pytest.MonkeyPatch, accept: str, beat: str) -> None:
    monkeypatch.setattr(following, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(following, "TICK_SECONDS", 0.02)
    run = bench.trigger((ASK, {"n": 1}))
    path = f"/api/runs/{run['run_id']}/events?follow=1&after=2"
    reply = bench.client.get(path, headers={"Authorization": "Bearer host", "Accept": accept})
    parts = iter(reply.response)
    assert [next(parts) for _ in range(3)] == [beat.encode()] * 3
    reply.close()


def test_a_follower_with_nothing_new_hears_something_at_once(bench: Bench) -> None:
    run = bench.trigger((ASK, {"n": 1}))
    path = f"/api/runs/{run['run_id']}/events?follow=1&after=2"
    began = time.monotonic()
    reply = bench.client.get(path, headers={"Authorization": "Bearer host", "Accept": "text/event-stream"})
    assert next(iter(reply.response)) == b":\n\n"
    assert time.monotonic() - began < following.HEARTBEAT_SECONDS / 2
    reply.close()


def _value(part: Any) -> dict[str, Any]:
    """The JSON in one part of a stream, of either form."""
    text = str(part, "utf-8")
    value: dict[str, Any] = json.loads(text[text.index("{") :])
    return value
