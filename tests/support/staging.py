"""Deliveries held at one stage of the path each, with a real worker and a misbehaving server of their own."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger import approvals, history, runs
from ledger.config import load
from ledger.engine import Engine, IncomingMessage
from ledger.ids import shard_of_id
from ledger.records import Run
from ledger.store import ScriptCall, StoreSettings, SyncStore
from tests.support.fake_section import fake_section
from tests.support.stack import Stack, quick_section
from tests.support.tool_calls import FakeServer
from tests.support.wait import wait_until

TENANT = "acme"
SERVERS = ("asked", "held", "sent", "done")
_POLICY = f"""
[policy]
mutation_tools = {json.dumps(["mcp__held__ok", "mcp__sent__hang", "mcp__done__ok"])}
[plugins]
modules = ["tests.support.case_tools", "tests.support.plugins.turns"]
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of a delivery: its run, its one call, the published record and how often the server was called."""

    run: str
    call: str | None = None
    record: str | None = None
    reason: str | None = None
    sent: int = 0


class Stages:
    """One session a stage: `before` a person is asked (a handler), `waiting`, `approved` but behind another run,
    `intent` on disk while the server is not reachable, `dispatched`, `replied` (a worker armed to freeze), `settled`.
    """

    def __init__(self, directory: Path, url: str, *, fault: str = "") -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.fakes = {name: FakeServer(_made(directory / name)) for name in SERVERS}
        self.fakes["held"].settings["gate"] = str(directory / "gate-held")
        sections = "".join(fake_section(self.fakes[name], _LEVELS.get(name), name=name) for name in SERVERS)
        timing = {"stop_drain_seconds": 1.0, "cancel_drain_seconds": 0.5}
        config = quick_section(lease=1.5, **timing) + sections + _POLICY
        env = {"TURNS_FILE": str(directory / "turns.jsonl"), **({"MUTATION_LEDGER_FAULT": fault} if fault else {})}
        self.stack = Stack(directory / "stack", url, config, env=env)
        self.worker = self.stack.add_worker()
        settings = load(self.stack.config, overrides={"redis": {"url": url}})
        self.engine = Engine(settings, tenant=TENANT, principal="host", agent="ops", data_dir=directory / "data")
        self.store = SyncStore(StoreSettings(settings.redis))
        self.runs: dict[str, Run] = {}
        self.deadlines: dict[str, float] = {}

    def close(self) -> None:
        """Ends everything."""
        self.engine.close()
        self.store.close()
        self.stack.stop()

    # Setting the stage

    def deliver(self, stage: str, *, seconds: float | None = None) -> None:
        """Hands in the delivery of a stage and returns when it stands there."""
        deadline = None if seconds is None else time.monotonic() + seconds
        if deadline is not None:
            self.deadlines[stage] = deadline
        getattr(self, f"_{stage}")(deadline)

    def _admit(self, stage: str, deadline: float | None, *calls: tuple[str, dict[str, Any]], **more: Any) -> None:
        told = IncomingMessage(stage, user="dana", calls=list(calls) or None, deadline_monotonic=deadline, **more)
        result = self.engine.handle_with_results(told, wait_seconds=0)
        self.runs[stage] = self.read(result.run_id)

    def _before(self, deadline: float | None) -> None:
        steps = [{"file": str(self.gate("before"))}, {"call": "mcp__asked__ok", "arguments": {"stage": "before"}}]
        self._admit("before", deadline, handler="follow", text="before", input=steps)
        turns = self.directory / "turns.jsonl"
        wait_until(lambda: turns.exists() and "start" in turns.read_text(), 20, "the handler to start")

    def _waiting(self, deadline: float | None) -> None:
        self._admit("waiting", deadline, ("mcp__asked__ok", {"stage": "waiting"}))

    def _approved(self, deadline: float | None) -> None:
        blocker = IncomingMessage("approved", user="dana", calls=[("case_held", {"gate": "approved"})])
        self.engine.handle_with_results(blocker, wait_seconds=0)
        wait_until(self.stack.effects, 20, "the run before it to be in flight")
        self._admit("approved", deadline, ("mcp__asked__ok", {"stage": "approved"}))
        self.approve("approved")

    def _intent(self, deadline: float | None) -> None:
        self._admit("intent", deadline, ("mcp__held__ok", {"stage": "intent"}))
        self._until("intent", lambda run: run.calls[0].status == "running")

    def _dispatched(self, deadline: float | None) -> None:
        self._admit("dispatched", deadline, ("mcp__sent__hang", {"stage": "dispatched"}))
        wait_until(self.fakes["sent"].effects, 20, "the call to be sent")

    def _replied(self, deadline: float | None) -> None:
        self._admit("replied", deadline, ("mcp__done__ok", {"stage": "replied"}))
        wait_until(self.fakes["done"].effects, 20, "the call to be sent")
        replied_at = time.monotonic()
        frozen = "stop" in self.stack.env["MUTATION_LEDGER_FAULT"]
        wait_until(
            lambda: self.frozen() if frozen else time.monotonic() > replied_at + 0.5,
            20,
            "the worker to freeze with the reply",
        )

    def _settled(self, deadline: float | None) -> None:
        self._admit("settled", deadline, ("mcp__done__ok", {"stage": "settled"}))
        self.ended("settled")

    # Acting

    def gate(self, name: str) -> Path:
        """The file that lets something go on."""
        return self.directory / f"gate-{name}"

    def release(self) -> None:
        """Lets the run before `approved` end, and handlers go on."""
        for path in (self.gate("before"), self.stack.effects_file.with_name("gate-approved")):
            path.touch()

    def frozen(self) -> bool:
        """Whether the worker stands still."""
        return frozen(self.worker)

    def thaw(self, worker: subprocess.Popen[bytes] | None = None) -> None:
        """Continues a frozen worker, the present one or one before it."""
        (worker or self.worker).send_signal(signal.SIGCONT)

    def approve(self, stage: str) -> None:
        """Bob says yes."""
        (approval_id,) = [call.approval_id for call in self.look(stage).calls if call.approval_id]
        made = approvals.Decision(approval_id, TENANT, "approve", "bob")
        self.store.run(approvals.decide(made, _shard(approval_id)))

    def cancel(self, stage: str) -> str:
        """Cancels the run; the answer."""
        run = self.runs[stage].run_id
        answer: str = self.store.run(runs.cancel_run(_shard(run), run, TENANT)).answer
        return answer

    def succeed(self) -> None:
        """Another worker takes over, one that nobody armed."""
        self.stack.env.pop("MUTATION_LEDGER_FAULT", None)
        self.worker = self.stack.add_worker()

    # Looking

    def read(self, run_id: str) -> Run:
        """A run as it is now."""
        reply = self._run(runs.read_run(_shard(run_id), run_id, TENANT))
        assert reply.run is not None
        found: Run = reply.run
        return found

    def look(self, stage: str) -> Run:
        """The stage's run as it is now."""
        return self.read(self.runs[stage].run_id)

    def ended(self, stage: str, timeout: float = 25.0) -> None:
        """Waits for the end of the stage's run."""
        self._until(stage, lambda run: run.status.ended, timeout)

    def asked(self, stage: str) -> None:
        """Waits until a person is asked."""
        self._until(stage, lambda run: run.status == "waiting_for_approval")

    def seen(self, stage: str) -> Seen:
        """What became of the stage's delivery."""
        run = self.look(stage)
        mutation = run.calls[0].mutation_id if run.calls else None
        session = self._run(history.read_session(TENANT, stage, 16))
        records = [one for one in history.outcomes(session) if one["mutation_id"] == mutation]
        assert len(records) <= 1
        record = records[0] if records else {}
        wanted = [fake.events("effect", arguments={"stage": stage}) for fake in self.fakes.values()]
        return Seen(
            run=run.status.value,
            call=run.calls[0].status.value if run.calls else None,
            record=record.get("status"),
            reason=record.get("reason"),
            sent=sum(map(len, wanted)),
        )

    def words(self, stage: str) -> list[str | None]:
        """What the journal's `tool_result` events say."""
        run = self.runs[stage].run_id
        page = self._run(runs.read_journal(_shard(run), run, TENANT, 0))
        return [event.word for event in page.events if event.type == "tool_result"]

    def _until(self, stage: str, predicate: Callable[[Run], bool], timeout: float = 20.0) -> None:
        wait_until(lambda: predicate(self.look(stage)), timeout, f"{stage}: {self.look(stage)}")

    def _run(self, call: ScriptCall[Any]) -> Any:
        return self.store.run(call)


_LEVELS = {"asked": {"ok": "approve"}}


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True)
    return directory


def _shard(any_id: str) -> int:
    shard = shard_of_id(any_id, 16)
    assert shard is not None
    return shard


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def frozen(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process stands still."""
    return _state(process.pid) == "T"


def wait_frozen(process: subprocess.Popen[bytes]) -> None:
    """Waits until the process stands still."""
    wait_until(lambda: frozen(process), 20, "the worker to stand still")


def wait_dead(process: subprocess.Popen[bytes], timeout: float) -> int:
    """The exit code of a process that must end."""
    wait_until(lambda: process.poll() is not None, timeout, "the worker to end")
    assert process.returncode is not None
    return process.returncode
