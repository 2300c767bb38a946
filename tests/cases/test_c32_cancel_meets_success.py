"""C32: cancelling overwrites no result, never says that a call which was sent was not, and needs no job queue."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.support.case_servers import CaseServers
from tests.support.wait import wait_until

LATE = "mcp__plain__late"


def _send(servers: CaseServers, session: str, seconds: float) -> str:
    """A call that was sent; its run."""
    run_id: str = servers.api.trigger(session, "d1", [(LATE, {"case": session, "seconds": seconds})]).body["run_id"]
    wait_until(lambda: servers.sent("plain", session), 20, "the call to be sent")
    return run_id


def _cancel(servers: CaseServers, run_id: str) -> Any:
    return servers.api.post(f"/api/runs/{run_id}/cancel")


@pytest.mark.proves("C-55")
def test_a_reply_in_the_drain_counts(servers: CaseServers) -> None:
    """(a) the reply comes shortly after the cancel; (e) cancelled twice, the same answer"""
    run_id = _send(servers, "c32-a", 0.5)
    answers = [_cancel(servers, run_id) for _ in range(2)]
    assert [(reply.status, reply.body["status"]) for reply in answers] == [(202, "cancelling"), (202, "cancelling")]
    run = servers.api.ended(run_id)
    assert (run["status"], run["calls"][0]["status"]) == ("cancelled", "completed")
    assert servers.sent("plain", "c32-a") == 1


@pytest.mark.proves("C-55")
def test_without_a_reply_in_the_drain_it_is_unknown_never_just_cancelled(servers: CaseServers) -> None:
    """(a) the reply comes too late"""
    run_id = _send(servers, "c32-late", 2.5)
    assert _cancel(servers, run_id).body["status"] == "cancelling"
    run = servers.api.ended(run_id, timeout=5.0)
    assert (run["status"], run["calls"][0]["status"]) == ("cancelled", "outcome_unknown")
    assert run["calls"][0]["outcome"]["status"] == "outcome_unknown"
    # Terminal states never change: not by the reply that comes now, nor by another cancel (e).
    late = time.monotonic() + 2.5
    wait_until(lambda: time.monotonic() > late, 5, "the reply to have come")
    again = _cancel(servers, run_id)
    assert (again.status, again.body["status"]) == (200, "cancelled")
    assert servers.api.run(run_id) == run
    assert servers.sent("plain", "c32-late") == 1


@pytest.mark.proves("C-55")
def test_before_dispatch_it_is_cancelled_and_never_sent(servers: CaseServers) -> None:
    """(c) approved and queued behind another run of its session; (e) twice, the same answer"""
    held = servers.api.trigger("c32-c", "d0", [("case_held", {"gate": "c32-c"})]).body["run_id"]
    wait_until(servers.stack.effects, 20, "the run before it to be in flight")
    run_id = servers.api.trigger("c32-c", "d1", [(LATE, {"case": "c32-c", "seconds": 0.0})]).body["run_id"]
    for _ in range(2):
        reply = _cancel(servers, run_id)
        assert (reply.status, reply.body["status"]) == (200, "cancelled")
    servers.stack.effects_file.with_name("gate-c32-c").touch()
    assert servers.api.ended(held)["status"] == "completed"
    run = servers.api.run(run_id)
    assert (run["status"], run["calls"][0]["status"], run["calls"][0]["outcome"]) == ("cancelled", "cancelled", None)
    assert servers.sent("plain", "c32-c") == 0


@pytest.mark.proves("C-40", "C-55")
def test_while_a_person_is_asked_it_is_cancelled_and_cannot_be_approved_any_more(servers: CaseServers) -> None:
    """(d)"""
    run = servers.api.trigger("c32-d", "d1", [("case_ask", {"case": "c32-d"})]).body
    approval = run["calls"][0]["approval_id"]
    assert _cancel(servers, run["run_id"]).body["status"] == "cancelled"
    decided = servers.api.approve(approval)
    assert (decided.status, decided.body["code"]) == (409, "approval_cancelled")
    ended = servers.api.ended(run["run_id"])
    assert (ended["status"], ended["calls"][0]["status"]) == ("cancelled", "cancelled")
    assert [effect for effect in servers.stack.effects() if effect["arguments"].get("case") == "c32-d"] == []


@pytest.mark.proves("C-55")
def test_after_the_reply_it_is_too_late(servers: CaseServers) -> None:
    """(b)"""
    run_id = _send(servers, "c32-b", 0.0)
    before = servers.api.ended(run_id)
    reply = _cancel(servers, run_id)
    assert (reply.status, reply.body["code"]) == (409, "run_ended")
    assert servers.api.run(run_id) == before
    assert before["status"] == "completed"


@pytest.mark.proves("C-31", "C-55")
def test_it_works_when_every_subscriber_was_cut_off(servers: CaseServers) -> None:
    """(f) the store drops the workers' subscriptions; renewals carry the news"""
    run_id = _send(servers, "c32-f", 20.0)
    client: Any = servers.server.client()
    stop = threading.Event()

    def cut() -> None:
        while not stop.wait(0.02):
            client.client_kill_filter(_type="pubsub")

    cutting = threading.Thread(target=cut)
    cutting.start()
    try:
        assert _cancel(servers, run_id).body["status"] == "cancelling"
        run = servers.api.ended(run_id, timeout=10.0)
    finally:
        stop.set()
        cutting.join(10)
    assert (run["status"], run["calls"][0]["status"]) == ("cancelled", "outcome_unknown")
    # By the cancel, not by its deadline.
    assert "reason" not in run["calls"][0]["outcome"]


@pytest.mark.parametrize("run_id", ["nonsense", "00" + "0" * 32])
def test_an_unknown_run_is_not_found(servers: CaseServers, run_id: str) -> None:
    """(g)"""
    assert _cancel(servers, run_id).status == 404
