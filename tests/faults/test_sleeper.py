"""A worker is stopped past its lease between intent and dispatch, and wakes up: it sends nothing (case C25)."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.checker import check, read_ledger
from tests.support.proxy import TcpProxy
from tests.support.scripted import marker
from tests.support.stack import Api, Stack, dashboards_section, native_section, quick_section
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

CREATE, SLOW = "mcp__dashboards__create", "mcp__dashboards__create_slow"


def status(api: Api, session: str) -> str | None:
    """The published status of the session's only mutation."""
    outcomes = api.outcomes(session)
    return outcomes[0]["status"] if outcomes else None


def _put_to_sleep(process: subprocess.Popen[bytes]) -> None:
    """SIGSTOP, and wait until every thread has stopped: the signal only begins it."""
    process.send_signal(signal.SIGSTOP)
    tasks = Path(f"/proc/{process.pid}/task")

    def stopped() -> bool:
        return all((task / "stat").read_text().rsplit(")", 1)[1].split()[0] == "T" for task in tasks.iterdir())

    wait_until(stopped, 5, "every thread to stop")


@pytest.mark.acceptance
@pytest.mark.proves("C-53", "C-32", "C-10")
def test_asleep_between_intent_and_dispatch(valkey: ValkeyProcess, tmp_path: Path) -> None:
    config = dashboards_section() + quick_section(lease=2.0)
    # One call at a time: the second waits for its place with its intent already written.
    config = config.replace("[mcp.servers.dashboards]", "[mcp.servers.dashboards]\nconcurrency = 1", 1)
    with Stack(tmp_path / "stack", valkey.url, config) as stack:
        api = stack.add_front_door()
        sleeper = stack.add_worker()
        api.trigger("session-a", "d1", [(SLOW, {"title": "sent", "seconds_after": 2.0})])
        wait_until(stack.effects, 20, "the first effect")
        waiting = api.trigger("session-b", "d1", [(CREATE, {"title": "never sent"})]).body
        wait_until(lambda: status(api, "session-b"), 20, "the second intent")
        _put_to_sleep(sleeper)
        stack.add_worker()
        wait_until(lambda: status(api, "session-b") == "outcome_unknown", 20, "its lease to end")
        assert api.ended(waiting["run_id"])["calls"][0]["status"] == "outcome_unknown"

        sleeper.send_signal(signal.SIGCONT)
        # It knows first-hand that it did not send the one, and that the other came back.
        wait_until(lambda: status(api, "session-b") == "not_executed", 20, "its report on the second")
        wait_until(lambda: status(api, "session-a") == "completed", 20, "its report on the first")
        assert [effect["title"] for effect in stack.effects()] == ["sent"]
        check(stack.effects(), read_ledger(valkey, ["session-a", "session-b"]))


@pytest.mark.acceptance
@pytest.mark.proves("C-23", "C-32")
def test_asleep_before_its_claim_was_answered(valkey: ValkeyProcess, tmp_path: Path) -> None:
    config = native_section() + quick_section(lease=2.0, checkpoint_wait_seconds=1.0)
    with TcpProxy(valkey.port) as proxy, Stack(tmp_path / "stack", valkey.url, config) as stack:
        api = stack.add_front_door()
        sleeper = stack.add_worker(store_url=proxy.url)
        api.trigger("session-a", "d0", [("pay", {"id": "warm-up"})], wait=20)
        answer = proxy.hold_reply(marker("claim_sessions"), saying=b"session-b")
        run = api.trigger("session-b", "d1", [("pay", {"id": "never sent"})]).body
        assert answer.arrived.wait(10)
        _put_to_sleep(sleeper)
        answer.release()
        stack.add_worker()
        assert api.ended(run["run_id"])["calls"][0]["status"] == "outcome_unknown"
        sleeper.send_signal(signal.SIGCONT)
        after = api.trigger("session-b", "d2", [("pay", {"id": "later"})], wait=20).body
        assert after["status"] == "completed"
        sleeper.send_signal(signal.SIGTERM)
        assert sleeper.wait(20) == 0
        assert [effect["id"] for effect in stack.effects()] == ["warm-up", "later"]
