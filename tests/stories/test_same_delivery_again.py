"""A host that got no answer sends its delivery again. That must never repeat the write."""

from __future__ import annotations

import pytest

from tests.support.stack import Api, Stack

CREATE = "mcp__dashboards__create"


@pytest.mark.acceptance
@pytest.mark.proves("C-60")
def test_the_same_delivery_again_is_no_second_write(service: Stack) -> None:
    agent = Api(service.ports[0])
    calls = [(CREATE, {"title": "Latency"})]
    first = agent.trigger("incident-2", "msg-1", calls).body

    # While the first is still waiting for its approval, the repeat attaches to it.
    assert agent.trigger("incident-2", "msg-1", calls).body["run_id"] == first["run_id"]
    agent.approve(first["calls"][0]["approval_id"])
    done = agent.ended(first["run_id"])

    # Afterwards it is refused with what is on record, and nobody is asked again.
    again = agent.trigger("incident-2", "msg-1", calls, wait=10).body
    assert again["run_id"] != first["run_id"]
    assert again["logical_turn_id"] == done["logical_turn_id"]
    (call,) = again["calls"]
    assert (call["status"], call["refusal"]["code"]) == ("refused", "mutation_completed")
    assert len([effect for effect in service.effects() if effect["title"] == "Latency"]) == 1

    # Other content under the same delivery id is a mistake, and said to be one.
    other = agent.trigger("incident-2", "msg-1", [(CREATE, {"title": "Throughput"})])
    assert (other.status, other.body["code"]) == (422, "delivery_mismatch")
