"""A worker that stood still inside a call until nobody counted on it any more (C-91), with real processes and servers.

What a person decides meanwhile stands; what the zombie reports then is kept as evidence, and an operator sees it: in
`show`, in the front door's `/metrics`, in `doctor`, in the worker's log.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.cli import checks
from ledger.config import RedisConfig
from ledger.durability import plain_client
from ledger.engine import Engine, IncomingMessage
from ledger.errors import Refused
from ledger.history import read_session
from ledger.records import Entry
from ledger.store import StoreSettings, SyncStore
from ledger.storetime import store_time
from tests.support.fake_section import fake_section
from tests.support.hosting import Hosting, message
from tests.support.stack import Api
from tests.support.staging import wait_frozen
from tests.support.tool_calls import FakeServer
from tests.support.wait import wait_until

LATE, OK = "mcp__fake__late", "mcp__fake__ok"
TIMING = {"lease_seconds": 1.5, "cancel_drain_seconds": 0.5}
POLICY = f"[policy]\nmutation_tools = {json.dumps([LATE, OK])}\n"


class Scene:
    """A front door, an engine and a worker that will be frozen."""

    def __init__(self, directory: Path, url: str, fault: str, seconds: float) -> None:
        self.fake = FakeServer(directory)
        timing = {**TIMING, "tool_timeout_seconds": seconds}
        self.host = Hosting(directory / "stack", url, fake_section(self.fake) + POLICY, timing=timing)
        if fault:
            self.host.stack.env["MUTATION_LEDGER_FAULT"] = fault
        self.zombie = self.host.stack.add_worker()
        self.host.stack.env.pop("MUTATION_LEDGER_FAULT", None)
        self.api: Api = self.host.stack.add_front_door()
        self.engine: Engine = self.host.engine()
        self.url = url
        self.store = SyncStore(StoreSettings(RedisConfig(url=url)))

    def begin(self, tool: str, **arguments: Any) -> IncomingMessage:
        """A delivery whose call has reached the server."""
        told = message("zombie", (tool, arguments), delivery_id="d1")
        self.run_id = self.engine.handle_with_results(told, wait_seconds=0).run_id
        wait_until(self.fake.effects, 20, "the call to be sent")
        return told

    def succeed(self, told: IncomingMessage) -> None:
        """Another worker takes over and publishes that nobody knows."""
        self.host.stack.add_worker()
        self.api.ended(self.run_id)
        assert self.entry(told).status == "outcome_unknown"

    def entry(self, told: IncomingMessage) -> Entry:
        """The ledger's entry of the one mutation."""
        session = self.store.run(read_session("acme", told.session_id, 16))
        assert session is not None
        (entry,) = session.turns[0].entries
        return entry

    def metric(self, name: str, label: str = "") -> float:
        """A figure of the front door's page."""
        page = self.api.get("/metrics").body.decode()
        found = re.search(rf"^{re.escape(name + label)} (\S+)$", page, re.MULTILINE)
        assert found, page
        return float(found.group(1))

    def attempts(self) -> dict[str, int]:
        """How attempts have ended, by the front door's page."""
        page = self.api.get("/metrics").body.decode()
        found = re.findall(r'^mutation_ledger_attempts_total\{verdict="(\w+)"\} (\S+)$', page, re.MULTILINE)
        return {verdict: int(float(count)) for verdict, count in found}

    def doctor(self) -> tuple[str, str]:
        """What `doctor` says of late reports: the verdict and the detail."""
        with plain_client(self.url) as client:
            finding = checks.late_reports(client, 16)
        assert finding is not None
        return finding.verdict, finding.detail

    def shown(self) -> dict[str, Any]:
        """The mutation as `show` prints it."""
        stack = self.host.stack
        command = ["show", "zombie", "--tenant", "acme", "--json", "--config", str(stack.config)]
        ran = subprocess.run(
            [sys.executable, "-m", "ledger.cli", *command, "--redis-url", self.url],
            env=stack.env, capture_output=True, check=True,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(ran.stdout)["turns"][0]["mutations"][0]
        return found

    def close(self) -> None:
        """Ends everything."""
        self.zombie.send_signal(signal.SIGCONT)
        self.store.close()
        self.host.close()


Make = Callable[..., Scene]


@pytest.fixture
def make(store_url: str, tmp_path: Path) -> Iterator[Make]:
    made: list[Scene] = []

    def scene(fault: str = "", *, seconds: float = 2.0) -> Scene:
        made.append(Scene(tmp_path, store_url, fault, seconds))
        return made[-1]

    yield scene
    for scene_made in made:
        scene_made.close()


def reported(scene: Scene) -> str:
    """The verdict of the one late report, once it has come; seen everywhere alike."""
    wait_until(lambda: '"event": "late_report"' in scene.host.stack.logs(), 20, "the late report")
    (line,) = [json.loads(line) for line in scene.host.stack.logs().splitlines() if '"event": "late_report"' in line]
    assert line["level"] == "error"
    verdict: str = line["verdict"]
    assert scene.metric("mutation_ledger_late_reports_total", f'{{verdict="{verdict}"}}') == 1
    assert scene.doctor() == ("warn", f"attempts that reported after they were reconciled: 1 {verdict}")
    assert scene.shown()["late_report"] == verdict
    return verdict


@pytest.mark.proves("C-91", "C-10")
def test_stopped_inside_a_call_past_its_not_after(make: Make) -> None:
    # Long enough for another worker to start before the first one's time is over.
    scene = make(seconds=9.0)
    told = scene.begin(LATE, seconds=0.5)
    scene.zombie.send_signal(signal.SIGSTOP)
    wait_frozen(scene.zombie)
    scene.succeed(told)
    mutation = scene.entry(told).mutation_id
    # The first attempt may still be running, for all that anybody can know.
    with pytest.raises(Refused) as caught:
        scene.engine.reconcile_mutation(told, mutation, completed=False)
    assert caught.value.code == "attempt_may_be_running"
    wait_until(lambda: scene.store.run(store_time()) > scene.entry(told).not_after, 20, "its time to be over")
    assert scene.engine.reconcile_mutation(told, mutation, completed=False)["status"] == "not_executed"
    decided, outcomes = scene.entry(told), scene.engine.sessions.mutation_outcomes("zombie")
    assert scene.doctor() == ("ok", "none: no attempt contradicts what somebody decided")
    assert scene.metric("mutation_ledger_late_reports_total", '{verdict="completed"}') == 0
    scene.zombie.send_signal(signal.SIGCONT)
    # Its reply and its deadline are both there when it wakes up; which it looks at first is its own affair.
    assert reported(scene) in ("completed", "outcome_unknown")
    after = scene.entry(told)
    assert (after.status, after.revision, after.reconciled_by) == (decided.status, decided.revision, "host")
    assert scene.engine.sessions.mutation_outcomes("zombie") == outcomes
    assert scene.fake.effects() == 1


@pytest.mark.proves("C-91", "C-13")
def test_said_not_to_be_executed_and_done_again_the_zombie_s_success_is_an_alarm(make: Make) -> None:
    """The worst case: the call was executed, a person said that it was not, and it is executed once more."""
    scene = make("reply.received:1:stop")
    told = scene.begin(OK, n=1)
    wait_frozen(scene.zombie)
    scene.succeed(told)
    mutation = scene.entry(told).mutation_id
    scene.engine.reconcile_mutation(told, mutation, completed=False, dispatcher_stopped=True)
    again = scene.engine.handle_with_results(told)
    assert [call["status"] for call in again.calls] == ["completed"]
    scene.zombie.send_signal(signal.SIGCONT)
    assert reported(scene) == "completed"
    assert scene.entry(told).status == "completed"
    assert scene.fake.effects() == 2


@pytest.mark.proves("C-25")
def test_what_workers_count_is_shown_by_the_front_door(make: Make) -> None:
    scene = make()
    for n in range(3):
        scene.engine.handle_with_results(message(f"counted-{n}", (OK, {"n": n})))
    scene.engine.handle_with_results(message("counted-late", (LATE, {"seconds": 9.0})))
    # Workers report every five seconds.
    wait_until(lambda: scene.attempts() == {"completed": 3, "outcome_unknown": 1}, 15, "the counts")
    assert scene.metric("mutation_ledger_unknown_outcomes") == 1
    assert scene.metric("mutation_ledger_store_up") == 1
