"""C01: a reply that asks for more input is no result, and nothing sends the call again."""

from __future__ import annotations

import pytest

from tests.support.case_servers import CaseServers


@pytest.mark.proves("C-56")
@pytest.mark.parametrize(
    ("server", "tool"),
    [
        ("modern", "input_required"),
        ("modern", "input_required_with_content"),
        ("plain", "input_required"),
        ("web", "input_required"),
    ],
)
def test_one_dispatch_is_one_tool_call(servers: CaseServers, server: str, tool: str) -> None:
    session = f"c01-{server}-{tool}"
    call = servers.call(server, tool, session, amount=1)
    assert call["status"] == "outcome_unknown"
    assert call["outcome"]["status"] == "outcome_unknown"
    assert call["result"] is None
    # The agent asks again: refused by the record, the server hears nothing.
    again = servers.call(server, tool, session, amount=1)
    assert (again["status"], again["refusal"]["code"]) == ("refused", "mutation_outcome_unknown")
    assert servers.sent(server, session) == 1
