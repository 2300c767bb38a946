"""Start here: one write, from the proposal to its published outcome."""

from __future__ import annotations

import pytest

from tests.support.stack import Api, Stack

CREATE = "mcp__dashboards__create"


@pytest.mark.acceptance
@pytest.mark.proves("C-13", "C-25", "C-40", "C-62")
def test_an_approved_mutation_happens_once(service: Stack) -> None:
    agent = Api(service.ports[0])

    # An agent proposes a write. Nothing happens yet: the tool needs a person's yes.
    proposed = agent.trigger("incident-1", "msg-1", [(CREATE, {"title": "Checkout errors"})])
    assert proposed.status == 202
    assert proposed.body["status"] == "waiting_for_approval"
    assert proposed.body["logical_turn_id"] is None

    # A person finds the request in the inbox, with the exact arguments, and approves it.
    (request,) = [row for row in agent.pending() if row["session_id"] == "incident-1"]
    assert request["tool"] == CREATE
    assert request["arguments"] == {"title": "Checkout errors"}
    assert request["requested_by"] == "agent"
    assert agent.approve(request["id"]).body["state"] == "approved"

    # A worker carries it out, once, and the outcome is published.
    run = agent.ended(proposed.body["run_id"])
    assert run["status"] == "completed"
    (call,) = run["calls"]
    assert call["outcome"]["status"] == "completed"
    assert agent.outcomes("incident-1") == [call["outcome"]]

    # The world agrees: the server's own record holds one dashboard with this mutation's id.
    (made,) = [effect for effect in service.effects() if effect["title"] == "Checkout errors"]
    assert made["mutation_id"] == call["mutation_id"]

    # The journal tells the whole story, in order.
    events = agent.get(f"/api/runs/{run['run_id']}/events").body["events"]
    assert [event["type"] for event in events] == [
        "run_started",
        "approval_requested",
        "approval_decided",
        "tool_execution_started",
        "mutation_outcome",
        "tool_result",
        "run_completed",
    ]
