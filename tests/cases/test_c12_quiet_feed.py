"""C12: a quiet feed is neither an error nor a minute of silence: it beats, and news come at once."""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack
from typing import Any

import pytest

from service import following, waiting
from tests.support.case_tools import ASK
from tests.support.casework import CaseStack, follow
from tests.support.wait import wait_until

QUIET_SECONDS = 40.0 if os.environ.get("MUTATION_LEDGER_TESTS") == "long" else 2.5
FEEDS = 20


def _clients(cases: CaseStack, name: str = "") -> int:
    return sum(name in client["name"] for client in cases.client.client_list())


@pytest.mark.proves("C-112")
def test_news_come_within_a_second_after_a_long_quiet(cases: CaseStack) -> None:
    run = cases.api.trigger("c12", "d1", [(ASK, {"case": "c12"})]).body
    names: list[str] = []
    came: list[float] = []

    def read(lines: Any) -> None:
        for line in lines:
            if line.startswith(b"event: "):
                names.append(line[7:].strip().decode())
                came.append(time.monotonic())

    with follow(cases.api, run["run_id"], after=run["journal_cursor"]) as response:
        reader = threading.Thread(target=read, args=(response,))
        reader.start()
        until = time.monotonic() + QUIET_SECONDS
        wait_until(lambda: names or time.monotonic() >= until, QUIET_SECONDS + 5, "a long quiet")
        assert names == []
        decided = time.monotonic()
        cases.api.approve(run["calls"][0]["approval_id"])
        reader.join(20)
        assert not reader.is_alive()
    assert names[0] == "approval_decided"
    assert came[0] - decided < 1.0
    assert names[-1] == "run_completed"
    assert "error" not in names


@pytest.mark.proves("C-71", "C-112")
def test_feeds_share_one_subscriber_and_leave_nothing_behind(cases: CaseStack) -> None:
    run = cases.api.trigger("c12-many", "d1", [(ASK, {"case": "c12-many"})]).body
    with follow(cases.api, run["run_id"]) as first:
        first.readline()
        before = _clients(cases, "mutation-ledger-signals")
        total = _clients(cases)
        with ExitStack() as stack:
            for _ in range(FEEDS):
                response = stack.enter_context(follow(cases.api, run["run_id"]))
                assert response.readline() == b"id: 1\n"
            assert _clients(cases, "mutation-ledger-signals") == before
        wait_until(lambda: _clients(cases) <= total + 1, 10, "the feeds' connections to be given back")
    cases.api.post(f"/api/runs/{run['run_id']}/cancel")


@pytest.mark.proves("C-112")
def test_no_wait_outlasts_what_a_client_is_promised() -> None:
    """A beat at least every 15 s; a lost hint costs a second; no blocking read comes near its socket's timeout."""
    assert following.HEARTBEAT_SECONDS + waiting.TICK_SECONDS <= 15
    assert waiting.TICK_SECONDS <= 1
    assert waiting.POLL_SECONDS < waiting.SILENCE_SECONDS


def test_a_beat_is_a_comment_that_clients_pass_over(cases: CaseStack) -> None:
    run = cases.api.trigger("c12-beat", "d1", [(ASK, {"case": "c12-beat"})]).body
    with follow(cases.api, run["run_id"], after=run["journal_cursor"]) as response:
        assert response.readline() == b":\n"
        assert response.readline() == b"\n"
    assert cases.api.post(f"/api/runs/{run['run_id']}/cancel").body["status"] == "cancelled"
