"""A cursor past the end of a journal skips nothing in silence: it is refused, before any stream begins (C-112)."""

from __future__ import annotations

import pytest

from tests.support.service import ASK, Bench


@pytest.mark.proves("C-112")
@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson", "text/event-stream"])
@pytest.mark.parametrize("follow", ["", "&follow=1"])
def test_a_cursor_that_is_ahead_is_refused(bench: Bench, accept: str, follow: str) -> None:
    run = bench.trigger((ASK, {"n": 1}))
    length = run["journal_cursor"]
    path = f"/api/runs/{run['run_id']}/events"
    if not (follow and accept == "application/json"):
        reply = bench.get(f"{path}?after={length + 1}{follow}", Accept=accept)
        assert (reply.status_code, reply.get_json()["code"]) == (409, "cursor_ahead")
        assert reply.content_type == "application/problem+json"
        late = bench.get(f"{path}?{follow}", Accept=accept, Last_Event_ID=str(length + 1))
        assert late.status_code == 409
    bench.approve(run, decision="deny")
    ended = bench.run(run["run_id"])["journal_cursor"]
    assert bench.get(f"{path}?after={ended}", Accept=accept).status_code == 200
    assert bench.get(f"{path}?after={ended + 1}", Accept=accept).status_code == 409
