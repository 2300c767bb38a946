"""C07: a reply that was received without an error flag is a success, whatever the library thinks of its content."""

from __future__ import annotations

import time

import pytest

from tests.support.case_servers import CaseServers


@pytest.mark.proves("C-56")
@pytest.mark.parametrize(
    ("server", "tool", "status"),
    [
        ("plain", "wrong_structured", "completed"),
        ("modern", "wrong_structured", "completed"),
        ("plain", "no_structured", "completed"),
        ("plain", "null_flag", "completed"),
        ("plain", "bad_content", "outcome_unknown"),
        ("plain", "bad_flag", "outcome_unknown"),
    ],
)
def test_what_the_reply_proves(servers: CaseServers, server: str, tool: str, status: str) -> None:
    session = f"c07-{server}-{tool}"
    call = servers.call(server, tool, session)
    assert (call["status"], call["outcome"]["status"]) == (status, status)
    # Fields of a record come from the host only, never from a reply (C-100).
    assert (call["outcome"]["resource_id"], call["outcome"]["title"]) == (None, None)
    again = servers.call(server, tool, session)
    assert (again["status"], again["refusal"]["code"]) == ("refused", f"mutation_{status}")
    assert servers.sent(server, session) == 1
    # One odd reply does not cut off the whole server.
    assert servers.call(server, "ok", f"{session}-next")["status"] == "completed"


@pytest.mark.proves("C-53", "C-56")
def test_tools_are_listed_before_a_call_is_sent_so_no_reply_is_lost_to_it(servers: CaseServers) -> None:
    """A server that never answers `tools/list` gets no call at all, and the deadline says so."""
    began = time.monotonic()
    call = servers.call("silent", "ok", "c07-silent")
    assert (call["status"], call["outcome"]["reason"]) == ("not_executed", "pre_dispatch_deadline")
    assert time.monotonic() - began < 10
    assert servers.sent("silent", "c07-silent") == 0
