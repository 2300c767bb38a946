"""C26: a connection that ends after the call was sent proves nothing; only what was provably not sent was not done."""

from __future__ import annotations

import pytest

from tests.support.case_servers import CaseServers


@pytest.mark.proves("C-56")
def test_a_server_that_acts_and_dies(servers: CaseServers) -> None:
    before = servers.starts("plain")
    call = servers.call("plain", "exit", "c26-exit")
    assert (call["status"], servers.sent("plain", "c26-exit")) == ("outcome_unknown", 1)
    # The next delivery gets a fresh server.
    assert servers.call("plain", "ok", "c26-exit-next")["status"] == "completed"
    assert servers.starts("plain") > before


@pytest.mark.proves("C-56")
@pytest.mark.parametrize(
    "tool", ["status_404", "status_410", "status_500", "status_502", "status_202", "drop", "sse_drop", "sse_drop_id"]
)
def test_a_proxy_that_answers_in_the_server_s_place(servers: CaseServers, tool: str) -> None:
    """The last one drops its stream, and answers the resumption with an empty stream until the deadline."""
    session = f"c26-{tool}"
    call = servers.call("web", tool, session)
    assert (call["status"], servers.sent("web", session)) == ("outcome_unknown", 1)
    again = servers.call("web", tool, session)
    assert again["refusal"]["code"] == "mutation_outcome_unknown"
    assert servers.call("web", "ok", f"{session}-next")["status"] == "completed"
    assert servers.sent("web", session) == 1


@pytest.mark.proves("C-56")
def test_a_connection_refused_before_a_byte_is_not_executed_and_may_be_asked_for_again(servers: CaseServers) -> None:
    web = servers.fakes["web"]
    port = web.port
    web.stop_http()
    try:
        call = servers.call("web", "ok", "c26-refused")
        assert (call["status"], call["outcome"]["status"]) == ("not_executed", "not_executed")
        assert servers.sent("web", "c26-refused") == 0
    finally:
        web.port = port
        web.start_http()
    # Nothing was done, so the same mutation may be attempted anew, once.
    again = servers.call("web", "ok", "c26-refused")
    assert (again["status"], servers.sent("web", "c26-refused")) == ("completed", 1)
