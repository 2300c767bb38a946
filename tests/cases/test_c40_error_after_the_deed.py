"""C40: the error flag is a failure, an error in prose is not, and an error of the protocol proves nothing."""

from __future__ import annotations

import pytest

from tests.support.case_servers import CaseServers

FAILED = [("plain", "is_error"), ("web", "is_error")]


@pytest.mark.proves("C-56")
@pytest.mark.parametrize(("server", "tool"), FAILED)
def test_the_flag_is_a_known_failure_and_no_reason_to_try_again(servers: CaseServers, server: str, tool: str) -> None:
    session = f"c40-{server}-{tool}"
    call = servers.call(server, tool, session)
    assert (call["status"], call["outcome"]["status"]) == ("failed", "failed")
    assert call["result"]["content"][0]["text"] == "card charged, mail failed"
    again = servers.call(server, tool, session)
    assert (again["status"], again["refusal"]["code"], again["result"]) == ("refused", "mutation_failed", None)
    assert servers.sent(server, session) == 1


@pytest.mark.proves("C-56")
@pytest.mark.parametrize(
    ("tool", "status"),
    [("error_text", "completed"), ("error_32602", "outcome_unknown"), ("error_32603", "outcome_unknown")],
)
def test_prose_is_not_judged_and_protocol_errors_prove_nothing(servers: CaseServers, tool: str, status: str) -> None:
    call = servers.call("plain", tool, f"c40-{tool}")
    assert (call["status"], call["outcome"]["status"]) == (status, status)
    assert "reason" not in call["outcome"]
    assert servers.sent("plain", f"c40-{tool}") == 1
