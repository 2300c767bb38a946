"""Deliveries through `POST /api/trigger`: who may, what is asked, what a redelivery gets."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from ledger.admission import tombstone_member
from ledger.attempts import Begun
from ledger.identity import delivery_identity, mutation_identity
from ledger.states import MutationStatus
from tests.support.service import ASK, AUTO, CONFIRM, PLAIN, READ_ONLY, Bench, plan
from tests.support.wait import wait_until

RUN_FIELDS = {"run_id", "session_id", "delivery", "logical_turn_id", "status", "journal_cursor", "calls"}
CALL_FIELDS = {
    "index", "tool", "mutation_id", "status", "approval_id", "protected", "outcome", "refusal", "result",
}  # fmt: skip


def _code(reply: Any) -> tuple[int, str]:
    return reply.status_code, reply.get_json()["code"]


@pytest.mark.proves("C-60")
def test_a_new_delivery_is_accepted_with_every_field_of_a_run(bench: Bench) -> None:
    reply = bench.post("/api/trigger", plan((ASK, {"n": 1}), (AUTO, {"n": 2}), delivery_id="d1", user="dana"))
    run = reply.get_json()
    assert reply.status_code == 202
    assert reply.headers["Location"] == f"/api/runs/{run['run_id']}"
    assert run.keys() == RUN_FIELDS
    assert all(call.keys() == CALL_FIELDS for call in run["calls"])
    assert run["delivery"] == delivery_identity("acme", "s1", "host", "dana", "d1")
    assert (run["status"], run["logical_turn_id"], run["journal_cursor"]) == ("waiting_for_approval", None, 2)
    assert [call["status"] for call in run["calls"]] == ["waiting_for_approval", "queued"]
    assert [call["protected"] for call in run["calls"]] == [True, True]
    assert run["calls"][0]["mutation_id"] == mutation_identity(ASK, {"n": 1})
    assert run["calls"][0]["approval_id"]
    assert run["calls"][1]["approval_id"] is None
    assert bench.run(run["run_id"]) == run


@pytest.mark.proves("C-05")
@pytest.mark.parametrize(
    ("tool", "canonical", "protected", "status"),
    [
        (ASK, ASK, True, "waiting_for_approval"),
        (CONFIRM, CONFIRM, True, "waiting_for_approval"),
        ("make", ASK, True, "waiting_for_approval"),
        (AUTO, AUTO, True, "queued"),
        (READ_ONLY, READ_ONLY, False, "queued"),
        (PLAIN, PLAIN, False, "queued"),
    ],
)
def test_policy_decides_protection(bench: Bench, tool: str, canonical: str, protected: bool, status: str) -> None:
    call = bench.trigger((tool, {"n": 1}))["calls"][0]
    assert (call["tool"], call["protected"], call["status"]) == (canonical, protected, status)


@pytest.mark.proves("C-43")
def test_a_rule_answers_in_place_of_a_person(make_bench: Callable[..., Bench]) -> None:
    rule = {"name": "small", "tool": ASK, "when": {"/amount": {"le": 50}}}
    bench = make_bench(policy={"auto_approve": [rule]})
    run = bench.trigger((ASK, {"amount": 50}), (ASK, {"amount": 51}))
    small, large = run["calls"]
    assert (small["status"], small["approval_id"], small["protected"]) == ("queued", None, True)
    assert large["status"] == "waiting_for_approval"
    # On record by the rule's name, and as nobody's decision.
    events = bench.get(f"/api/runs/{run['run_id']}/events").get_json()["events"]
    (answered,) = [event for event in events if event["type"] == "approval_decided"]
    assert (answered["index"], answered["decision"], answered["rule"]) == (0, "approved", "small")
    assert "approval_id" not in answered


@pytest.mark.proves("C-06")
def test_an_unprotected_mcp_tool_warns_once_and_without_arguments(bench: Bench) -> None:
    with capture_logs() as logs:
        for n in range(3):
            bench.trigger((PLAIN, {"s3cret": n}), (READ_ONLY, {}), (ASK, {}))
    warnings = [line for line in logs if line["event"] == "unprotected_mcp_tool"]
    assert [line["tool"] for line in warnings] == [PLAIN]
    assert "register_mutation_tools" in str(warnings)
    assert "s3cret" not in str(logs)


@pytest.mark.proves("C-64")
@pytest.mark.parametrize("tool", ["mcp__nowhere__create", "mcp__d", "mcp__dd__create", "native_nobody_has"])
def test_an_unknown_tool_is_unprocessable(bench: Bench, tool: str) -> None:
    assert _code(bench.post("/api/trigger", plan((tool, {})))) == (422, "unknown_tool")


@pytest.mark.proves("C-64")
def test_an_unknown_handler_is_unprocessable(bench: Bench) -> None:
    body = {"session_id": "s1", "handler": "h", "text": "t", "input": {"a": 1}}
    assert _code(bench.post("/api/trigger", body)) == (422, "unknown_handler")


@pytest.mark.parametrize(
    ("token", "fields", "expected"),
    [
        ("host", {}, 202),
        ("host", {"agent": "any", "user": "dana"}, 202),
        ("lone", {}, 202),
        ("lone", {"agent": "one", "user": "lone"}, 202),
        ("lone", {"agent": "two"}, (403, "agent_not_allowed")),
        ("lone", {"user": "dana"}, (403, "user_not_allowed")),
        ("many", {}, (400, "agent_required")),
        ("many", {"agent": "two"}, 202),
        ("many", {"agent": "three"}, (403, "agent_not_allowed")),
        ("bob", {}, (403, "forbidden")),
        ("nobody", {}, (401, "unauthorized")),
    ],
)
def test_tokens_agents_and_users(bench: Bench, token: str, fields: dict[str, str], expected: Any) -> None:
    reply = bench.post("/api/trigger", plan((AUTO, {})) | fields, as_=token)
    assert (reply.status_code if isinstance(expected, int) else _code(reply)) == expected
    if reply.status_code == 401:
        assert reply.headers["WWW-Authenticate"].startswith("Bearer")


def test_default_agent_and_user_are_the_tokens(bench: Bench) -> None:
    expected = {"host": ("host", "host"), "lone": ("one", "lone")}
    for token, (agent, user) in expected.items():
        run = bench.trigger((AUTO, {}), as_=token, delivery_id="d1")
        assert run["delivery"] == delivery_identity("acme", "s1", agent, user, "d1")


@pytest.mark.proves("C-60")
def test_the_same_delivery_attaches_whatever_its_spelling(bench: Bench) -> None:
    first = bench.trigger((ASK, {"a": 1, "b": 2}), delivery_id="d1")
    body = json.dumps(plan(("make", {"b": 2, "a": 1}), delivery_id="d1", deadline_seconds=5), indent=3)
    again = bench.raw(body.encode())
    assert (again.status_code, again.get_json()["run_id"]) == (202, first["run_id"])
    for change in (
        plan((ASK, {"a": 1, "b": 3}), delivery_id="d1"),
        plan((ASK, {"a": 1.0, "b": 2}), delivery_id="d1"),
        plan((ASK, {"a": 1, "b": 2}), delivery_id="d1", on_error="continue"),
        plan((ASK, {"a": 1, "b": 2}), delivery_id="d1", logical_turn_id="t"),
    ):
        assert _code(bench.post("/api/trigger", change)) == (422, "delivery_mismatch")


@pytest.mark.proves("C-60")
def test_an_idempotency_key_is_a_delivery_id(bench: Bench) -> None:
    first = bench.trigger((ASK, {}), delivery_id="d1")
    again = bench.post("/api/trigger", plan((ASK, {})), Idempotency_Key="d1")
    both = bench.post("/api/trigger", plan((ASK, {}), delivery_id="d1"), Idempotency_Key="d1")
    assert [reply.get_json()["run_id"] for reply in (again, both)] == [first["run_id"]] * 2
    differ = bench.post("/api/trigger", plan((ASK, {}), delivery_id="d1"), Idempotency_Key="d2")
    assert _code(differ) == (400, "invalid_request")
    for key in ("k" * 129, "\xe9"):
        assert _code(bench.post("/api/trigger", plan((ASK, {})), Idempotency_Key=key)) == (400, "invalid_request")


@pytest.mark.proves("C-60", "C-11")
def test_a_redelivery_is_refused_with_the_record_and_never_a_result(bench: Bench) -> None:
    first = bench.trigger((AUTO, {"n": 1}), (AUTO, {"n": 2}), delivery_id="d1", on_error="continue")
    claimed = bench.settle(bench.begin(first), MutationStatus.COMPLETED, '{"receipt":"r1"}')
    bench.settle(claimed, MutationStatus.OUTCOME_UNKNOWN, None)
    ended = bench.run(first["run_id"])
    assert (ended["status"], ended["calls"][0]["result"]) == ("failed", {"receipt": "r1"})
    again = bench.post("/api/trigger", plan((AUTO, {"n": 1}), (AUTO, {"n": 2}), delivery_id="d1", on_error="continue"))
    run = again.get_json()
    assert (again.status_code, run["logical_turn_id"]) == (200, ended["logical_turn_id"])
    assert run["run_id"] != first["run_id"]
    assert [call["refusal"] for call in run["calls"]] == [
        {"code": "mutation_completed", "id": None, "title": None, "url": None, "status": "completed", "reason": None},
        {
            "code": "mutation_outcome_unknown",
            "id": None,
            "title": None,
            "url": None,
            "status": "outcome_unknown",
            "reason": None,
        },
    ]
    assert [(call["status"], call["outcome"], call["result"]) for call in run["calls"]] == [("refused", None, None)] * 2


@pytest.mark.proves("C-61")
def test_identical_live_requests_without_an_id_are_one_run(bench: Bench) -> None:
    replies: list[Any] = []
    go = threading.Barrier(20)

    def ask() -> None:
        client = bench.app.test_client()
        go.wait()
        body = plan((ASK, {"n": 1}))
        replies.append(client.post("/api/trigger", json=body, headers={"Authorization": "Bearer host"}))

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {reply.status_code for reply in replies} == {202}
    assert len({reply.get_json()["run_id"] for reply in replies}) == 1
    assert len(bench.get("/api/approvals", as_="bob").get_json()["approvals"]) == 1
    other_user = bench.trigger((ASK, {"n": 1}), user="dana")
    assert other_user["run_id"] != replies[0].get_json()["run_id"]


@pytest.mark.proves("C-61")
def test_a_wait_that_runs_out_says_still_running_with_the_stored_status(bench: Bench) -> None:
    began = time.monotonic()
    reply = bench.post("/api/trigger?wait=0.3", plan((ASK, {"n": 1})))
    run = reply.get_json()
    assert reply.status_code == 202
    assert 0.3 <= time.monotonic() - began < 5
    assert run.keys() == RUN_FIELDS | {"run_status"}
    assert (run["status"], run["run_status"]) == ("still_running", "waiting_for_approval")
    assert run["calls"][0]["approval_id"]


@pytest.mark.proves("C-61")
def test_a_wait_ends_with_the_run(bench: Bench) -> None:
    replies: list[Any] = []
    client = bench.app.test_client()

    def ask() -> None:
        body = plan((AUTO, {"n": 1}), delivery_id="d1")
        replies.append(client.post("/api/trigger?wait=30", json=body, headers={"Authorization": "Bearer host"}))

    waiter = threading.Thread(target=ask)
    waiter.start()
    wait_until(lambda: bench.door.hub.waiting, 5, "the waiter to register")
    bench.finish(bench.trigger((AUTO, {"n": 1}), delivery_id="d1"))
    waiter.join(5)
    run = replies[0].get_json()
    assert (replies[0].status_code, run["status"]) == (200, "completed")
    assert run["calls"][0]["outcome"]["status"] == "completed"
    assert run["calls"][0]["result"] == {"ok": True}
    assert run["logical_turn_id"] == run["calls"][0]["outcome"]["logical_turn_id"]


@pytest.mark.proves("C-62", "C-63")
def test_a_turn_is_made_with_the_first_mutation_and_can_be_continued_by_its_owner_only(bench: Bench) -> None:
    first = bench.trigger((AUTO, {"n": 1}), delivery_id="d1")
    assert first["logical_turn_id"] is None
    bench.finish(first)
    turn = bench.run(first["run_id"])["logical_turn_id"]
    more = bench.trigger((AUTO, {"n": 1}), (AUTO, {"n": 2}), delivery_id="d2", logical_turn_id=turn)
    assert more["logical_turn_id"] == turn
    assert more["calls"][0]["refusal"]["code"] == "mutation_completed"
    for change in ({"user": "dana"}, {"agent": "else"}, {"session_id": "s2"}, {"logical_turn_id": "0" * 34}):
        body = plan((AUTO, {"n": 3}), delivery_id="d3", logical_turn_id=turn) | change
        assert _code(bench.post("/api/trigger", body)) == (409, "logical_turn_unavailable")


@pytest.mark.proves("C-71")
def test_full_queues_are_429_with_a_time_to_come_back(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(service={"max_queued_runs": 2, "max_pending_approvals": 1})
    bench.trigger((ASK, {"n": 1}))
    full = bench.post("/api/trigger", plan((ASK, {"n": 2})))
    assert _code(full) == (429, "approvals_full")
    bench.trigger((AUTO, {"n": 1}))
    full = bench.post("/api/trigger", plan((AUTO, {"n": 2})))
    assert _code(full) == (429, "queue_full")
    assert int(full.headers["Retry-After"]) > 0


@pytest.mark.proves("C-84")
def test_a_retired_delivery_is_gone(bench: Bench, store_url: str) -> None:
    identity = bytes.fromhex(delivery_identity("acme", "s1", "host", "host", "d1"))
    run = bench.trigger((AUTO, {}))
    shard = run["run_id"][:2]
    with redis.Redis.from_url(store_url) as client:
        client.zadd(f"ml:{{{shard}}}:retired", {tombstone_member(identity, bench.door.limits.tombstone_key): 1e15})
    assert _code(bench.post("/api/trigger", plan((AUTO, {}), delivery_id="d1"))) == (410, "delivery_retired")


def test_a_worker_is_woken_once_for_a_burst(bench: Bench) -> None:
    for n in range(5):
        bench.trigger((AUTO, {"n": n}))
    assert bench.waker.wakes == 1


def test_trace_context_travels_with_the_run(bench: Bench) -> None:
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    for given, passed_on in ((trace, trace), ("nonsense", None)):
        session = f"s-{given[:2]}"
        run = bench.post("/api/trigger", plan((AUTO, {}), session=session), traceparent=given).get_json()
        work = bench.begin(run).work
        assert isinstance(work, Begun)
        assert work.traceparent == passed_on


@pytest.mark.proves("C-50")
def test_the_ceiling_is_the_budgets_for_eligible_calls_and_the_hosts_if_earlier(
    make_bench: Callable[..., Bench],
) -> None:
    budget = {"tools": [ASK], "execution_seconds": 10, "request_ceiling_seconds": 100}
    bench = make_bench(budget=budget)
    eligible = bench.trigger((ASK, {}), session="s1")
    sooner = bench.trigger((ASK, {}), session="s2", deadline_seconds=7)
    plain = bench.trigger((CONFIRM, {}), session="s3")
    spans = {}
    for run in (eligible, sooner, plain):
        shown = bench.get(f"/api/approvals/{run['calls'][0]['approval_id']}", as_="bob").get_json()
        spans[run["session_id"]] = _seconds(shown["expires_at"]) - _seconds(shown["requested_at"])
    assert spans == {"s1": pytest.approx(100), "s2": pytest.approx(7), "s3": pytest.approx(300)}


def _seconds(text: str) -> float:
    hours, minutes, seconds = text[11:-1].split(":")
    return int(text[8:10]) * 86400 + int(hours) * 3600 + int(minutes) * 60 + float(seconds)


@pytest.mark.parametrize("accept", ["image/png", "text/html", "application/json;q=0"])
def test_an_accept_that_cannot_be_met(bench: Bench, accept: str) -> None:
    assert _code(bench.post("/api/trigger", plan((AUTO, {})), Accept=accept)) == (406, "not_acceptable")


@pytest.mark.parametrize("accept", ["*/*", "application/json", "application/*", "text/html, */*;q=0.1", ""])
def test_accepts_that_mean_json(bench: Bench, accept: str) -> None:
    reply = bench.post("/api/trigger", plan((AUTO, {})), Accept=accept)
    assert (reply.status_code, reply.content_type) == (202, "application/json")


def test_metrics_count_admissions_without_names(bench: Bench) -> None:
    run = bench.trigger((AUTO, {"n": 1}), session="s-secret")
    bench.trigger((AUTO, {"n": 1}), session="s-secret")
    bench.post("/api/trigger", plan(("mcp__nowhere__x", {})))
    bench.get("/made/up/by/a/scanner")
    assert bench.get("/metrics", as_="bob").status_code == 403
    text = bench.get("/metrics").text
    assert 'mutation_ledger_admissions_total{result="new"} 1.0' in text
    assert 'mutation_ledger_admissions_total{result="attached"} 1.0' in text
    assert 'mutation_ledger_admissions_total{result="unknown_tool"} 1.0' in text
    assert 'mutation_ledger_requests_total{method="GET",route="unmatched",status="404"} 1.0' in text
    for word in ("s-secret", "acme", "scanner", run["run_id"], AUTO):
        assert word not in text
