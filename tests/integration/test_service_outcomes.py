"""History, the snapshot of changes, and what trusted hosts read and attach."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from ledger.contracts import load
from ledger.reconciliation import reconcile_mutation
from ledger.states import MutationStatus
from tests.support.service import ASK, AUTO, Bench, sse


def _code(reply: Any) -> tuple[int, str]:
    return reply.status_code, reply.get_json()["code"]


def _turn(bench: Bench, *ends: MutationStatus, **more: Any) -> dict[str, Any]:
    """An ended run of one turn, its calls ended so."""
    calls = [(AUTO, {"n": n}) for n in range(len(ends))]
    run = bench.trigger(*calls, on_error="continue", **more)
    claimed = bench.begin(run)
    for status in ends:
        claimed = bench.settle(claimed, status)
    return bench.run(run["run_id"])


def _snapshot(bench: Bench, run: dict[str, Any], query: str = "", **headers: str) -> Any:
    path = f"/api/mutation-events?session_id={run['session_id']}&logical_turn_id={run['logical_turn_id']}{query}"
    return bench.get(path, **headers)


def _told(reply: Any) -> list[tuple[int, str, str]]:
    assert (reply.status_code, reply.mimetype) == (200, "text/event-stream")
    frames = sse(reply.text)
    assert {frame["event"] for frame in frames} <= {"mutation_outcome"}
    records = [json.loads(frame["data"]) for frame in frames]
    schema = load()["schema"]
    for record in records:
        jsonschema.validate(record, schema)
    return [
        (int(frame["id"]), record["mutation_id"], record["status"])
        for frame, record in zip(frames, records, strict=True)
    ]


@pytest.mark.proves("C-100")
def test_history_is_in_order_of_turns_and_first_intents(bench: Bench) -> None:
    first = _turn(bench, MutationStatus.COMPLETED, MutationStatus.OUTCOME_UNKNOWN, delivery_id="d1")
    second = _turn(bench, MutationStatus.FAILED, MutationStatus.APPROVED, delivery_id="d2")
    found = bench.get("/api/mutation-outcomes?session_id=s1").get_json()["mutation_outcomes"]
    assert [record["status"] for record in found] == ["completed", "outcome_unknown", "failed", "not_executed"]
    assert [record["logical_turn_id"] for record in found] == [first["logical_turn_id"]] * 2 + [
        second["logical_turn_id"]
    ] * 2
    assert found == [call["outcome"] for run in (first, second) for call in run["calls"]]
    for query in ("session_id=nobody", "session_id=s1"):
        who = "other" if query.endswith("s1") else "host"
        assert bench.get(f"/api/mutation-outcomes?{query}", as_=who).get_json() == {"mutation_outcomes": []}
    assert _code(bench.get("/api/mutation-outcomes")) == (400, "invalid_request")
    assert _code(bench.get("/api/mutation-outcomes?session_id=s1", as_="bob")) == (403, "forbidden")


@pytest.mark.proves("C-110")
def test_the_snapshot_replays_changes_after_a_cursor_and_every_unknown(bench: Bench) -> None:
    run = _turn(bench, MutationStatus.OUTCOME_UNKNOWN, MutationStatus.COMPLETED, MutationStatus.FAILED)
    unknown, done, failed = (call["mutation_id"] for call in run["calls"])
    everything = [(2, unknown, "outcome_unknown"), (4, done, "completed"), (6, failed, "failed")]
    assert _told(_snapshot(bench, run)) == everything
    assert _told(_snapshot(bench, run, "&after=0")) == everything
    assert _told(_snapshot(bench, run, "&after=4")) == [everything[0], everything[2]]
    assert _told(_snapshot(bench, run, Last_Event_ID="6")) == [everything[0]]
    bench.door.store.run(
        reconcile_mutation(
            "acme", "s1", run["logical_turn_id"], unknown, completed=True, by="t", shards=bench.door.shards
        )
    )
    assert _told(_snapshot(bench, run, "&after=6")) == [(7, unknown, "completed")]
    assert _told(_snapshot(bench, run, "&after=7")) == []


@pytest.mark.proves("C-110")
def test_a_started_attempt_reads_as_unknown(bench: Bench) -> None:
    run = bench.trigger((AUTO, {"n": 1}))
    bench.begin(run)
    run = bench.run(run["run_id"])
    assert _told(_snapshot(bench, run)) == [(1, run["calls"][0]["mutation_id"], "outcome_unknown")]
    assert run["calls"][0]["outcome"]["status"] == "outcome_unknown"


@pytest.mark.proves("C-110")
def test_snapshot_errors(bench: Bench) -> None:
    run = _turn(bench, MutationStatus.COMPLETED)
    for cursor in ("-1", "x", "1.0", ""):
        assert _code(_snapshot(bench, run, f"&after={cursor}")) == (400, "invalid_request")
    assert _code(_snapshot(bench, run, Last_Event_ID="x")) == (400, "invalid_request")
    assert _code(_snapshot(bench, run, "&after=3")) == (409, "cursor_ahead")
    assert _code(_snapshot(bench, run | {"session_id": "nobody"})) == (404, "not_found")
    assert _code(_snapshot(bench, run | {"logical_turn_id": "0" * 34})) == (404, "not_found")
    assert _code(_snapshot(bench, run, as_="other")) == (404, "not_found")
    assert _code(_snapshot(bench, run, Accept="image/png")) == (406, "not_acceptable")
    assert _snapshot(bench, run).headers["X-Accel-Buffering"] == "no"


@pytest.mark.proves("C-92")
def test_the_state_of_a_delivery_is_the_detached_snapshot(bench: Bench) -> None:
    path = "/api/mutation-state?session_id=s1&delivery_id=d1"
    run = bench.trigger((AUTO, {"n": 0}), (AUTO, {"n": 1}), delivery_id="d1", on_error="continue")
    assert bench.get(path).get_json() == {"mutation_state": None}
    claimed = bench.begin(run)
    started = bench.get(path).get_json()["mutation_state"]
    first, second = (call["mutation_id"] for call in run["calls"])
    assert started["mutations"][first] == {"id": first, "tool": AUTO, "status": "outcome_unknown"}
    claimed = bench.settle(claimed)
    bench.settle(claimed, MutationStatus.APPROVED)
    turn = bench.run(run["run_id"])["logical_turn_id"]
    bench.trigger((AUTO, {"n": 9}), delivery_id="d2", logical_turn_id=turn)
    state = bench.get(path).get_json()["mutation_state"]
    assert state.keys() == {"id", "user_id", "delivery", "deliveries", "finished", "mutations"}
    assert (state["id"], state["user_id"], state["delivery"]) == (turn, "host", run["delivery"])
    assert len(state["deliveries"]) == 2
    assert {key: value["status"] for key, value in state["mutations"].items()} == {
        first: "completed",
        second: "approved",
    }
    assert bench.get(path.replace("d1", "d2")).get_json()["mutation_state"] == state
    for other in (f"{path}&user=dana", f"{path}&agent=else", path.replace("s1", "s2"), path.replace("d1", "d9")):
        assert bench.get(other).get_json() == {"mutation_state": None}
    assert bench.get(path, as_="other").get_json() == {"mutation_state": None}
    assert _code(bench.get(path, as_="bob")) == (403, "forbidden")


@pytest.mark.proves("C-90")
def test_metadata_is_attached_by_delivery_or_turn_and_shown_sanitised(bench: Bench) -> None:
    run = bench.trigger((AUTO, {"n": 1}), delivery_id="d1")
    claimed = bench.begin(run)
    turn = bench.run(run["run_id"])["logical_turn_id"]
    mutation = run["calls"][0]["mutation_id"]
    body: dict[str, Any] = {"session_id": "s1", "delivery_id": "d1", "mutation_id": mutation}
    early = bench.post("/api/mutation-metadata", body | {"metadata": {"id": "r1"}}).get_json()
    assert (early["status"], early["resource_id"]) == ("outcome_unknown", "r1")
    bench.settle(claimed)
    more = {"id": "r1", "title": "T", "url": "https://u:p@host.example/x?token=1", "scope_identity": "s"}
    del body["delivery_id"]
    late = bench.post("/api/mutation-metadata", body | {"logical_turn_id": turn, "metadata": more})
    assert late.status_code == 200
    jsonschema.validate(late.get_json(), load()["schema"])
    assert late.get_json()["url"] == "https://host.example/x"
    assert bench.run(run["run_id"])["calls"][0]["outcome"] == late.get_json()
    state = bench.get("/api/mutation-state?session_id=s1&delivery_id=d1").get_json()["mutation_state"]
    assert state["mutations"][mutation]["metadata"] == more
    redelivered = bench.trigger((AUTO, {"n": 1}), delivery_id="d1")["calls"][0]["refusal"]
    assert (redelivered["id"], redelivered["title"], redelivered["status"]) == ("r1", "T", "completed")


@pytest.mark.proves("C-90", "C-64")
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"metadata": {"owner": "x"}}, (400, "invalid_request")),
        ({"metadata": {"id": 7}}, (400, "invalid_request")),
        ({"metadata": {"title": "x" * 5000}}, (400, "invalid_request")),
        ({"mutation_id": "x"}, (400, "invalid_request")),
        ({"logical_turn_id": "t"}, (400, "invalid_request")),
        ({"delivery_id": None}, (400, "invalid_request")),
        ({"delivery_id": "d9"}, (404, "not_found")),
        ({"user": "dana"}, (404, "not_found")),
        ({"mutation_id": "0" * 64}, (404, "not_found")),
        ({"session_id": "nobody"}, (404, "not_found")),
    ],
)
def test_metadata_that_is_refused(bench: Bench, change: dict[str, Any], expected: tuple[int, str]) -> None:
    run = _turn(bench, MutationStatus.COMPLETED, delivery_id="d1")
    body = {"session_id": "s1", "delivery_id": "d1", "mutation_id": run["calls"][0]["mutation_id"], "metadata": {}}
    assert _code(bench.post("/api/mutation-metadata", body | change)) == expected


@pytest.mark.proves("C-41")
def test_denials_and_expiries_leave_no_outcome(bench: Bench) -> None:
    run = bench.trigger((ASK, {"n": 1}))
    bench.approve(run, decision="deny")
    assert bench.get("/api/mutation-outcomes?session_id=s1").get_json() == {"mutation_outcomes": []}
    assert bench.run(run["run_id"])["calls"][0]["outcome"] is None


@pytest.mark.proves("C-101")
def test_the_contract_is_served_to_anybody(bench: Bench) -> None:
    reply = bench.client.get("/api/contracts/mutation_outcome_v1.json")
    assert (reply.status_code, reply.mimetype, reply.get_json()) == (200, "application/json", load())
