"""Handler runs on real workers: deliveries go straight to the ledger, workers are processes, handlers follow steps."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ledger import approvals, history, runs
from ledger.adapters.rq_wake import RqWaker
from ledger.admission import Admitted, Delivery, admit_delivery
from ledger.config import RedisConfig
from ledger.handlers import handler_input
from ledger.identity import session_hash
from ledger.ids import shard_of_id
from ledger.records import Approval, Event, Run, Turn
from ledger.store import ScriptCall, StoreSettings, SyncStore
from tests.support.direct import SHARDS, limits
from tests.support.stack import Stack, quick_section
from tests.support.wait import wait_until

TENANT = "acme"
MODULES = ("tests.support.effect_tools", "tests.support.plugins.turns")


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    """A step that asks for a call."""
    return {"call": tool, "arguments": arguments}


class Turns:
    """A store client that plays front door and approver, and a stack for workers.

    `fresh` begins another story on the same processes: another session, and no effects yet.
    """

    def __init__(
        self,
        directory: Path,
        url: str,
        *,
        lease: float = 1.0,
        workers: str = "",
        modules: Sequence[str] = MODULES,
        env: Mapping[str, str] | None = None,
        **timing: float,
    ) -> None:
        self.directory = directory
        self.turns_file = directory / "turns.jsonl"
        config = quick_section(lease=lease, **timing) + workers
        config += f"\n[plugins]\nmodules = {json.dumps(modules)}\n"
        self.stack = Stack(directory / "stack", url, config, env={"TURNS_FILE": str(self.turns_file), **(env or {})})
        self.store = SyncStore(StoreSettings(RedisConfig(url=url)))
        self.store.open()
        self.session = "s1"
        self._waker = RqWaker(url)
        self._stories = 1
        self._effects_before = 0

    def fresh(self) -> Turns:
        """Another session, whose deliveries, words and effects are told apart from those before."""
        self._stories += 1
        self.session = f"s{self._stories}"
        self._effects_before = len(self.stack.effects())
        return self

    def close(self) -> None:
        """Ends every process."""
        self.stack.stop()
        self.store.close()

    def run(self, script: ScriptCall[Any]) -> Any:
        """Runs one script call, confirmed."""
        return self.store.run(script)

    def deliver(
        self,
        did: str,
        *steps: dict[str, Any],
        handler: str = "follow",
        session: str | None = None,
        given: Any = None,
        **options: Any,
    ) -> Run:
        """Hands in a delivery for a handler, in the story's own session unless another is named.

        Its text tells it from those of other stories; its input are the steps, or what is `given`.
        """
        text, value = f"{self.session}/{did}", list(steps) if given is None else given
        content = {"handler": handler, "text": text, "input": value}
        made = Delivery(
            TENANT,
            session or self.session,
            "ops",
            "dana",
            "agent",
            did,
            [],
            content,
            handler=handler,
            input_json=handler_input(text, value),
            **options,
        )
        admitted: Admitted = self.run(admit_delivery(made, limits("another policy"), SHARDS))
        self.wake(admitted.wake)
        return admitted.run

    def wake(self, wanted: bool) -> None:
        """Wakes a worker if a script asked for it."""
        if wanted:
            self._waker.wake()

    def read(self, run: Run) -> Run:
        """The run as it is now."""
        reply = self.run(runs.read_run(_shard(run.run_id), run.run_id, TENANT))
        self.wake(reply.wake)
        assert reply.run is not None
        found: Run = reply.run
        return found

    def until(self, run: Run, status: str, timeout: float = 10.0) -> Run:
        """The run once it has that status."""
        wait_until(lambda: self.read(run).status == status, timeout, f"the run to be {status}: {self.read(run)}")
        return self.read(run)

    def ended(self, run: Run, timeout: float = 20.0) -> Run:
        """The run once it is over."""
        wait_until(lambda: self.read(run).status.ended, timeout, "the end of the run")
        return self.read(run)

    def asked(self, run: Run, timeout: float = 10.0) -> str:
        """The id of the request that the run waits for."""

        def waiting() -> list[str]:
            calls = self.read(run).calls
            return [
                found.approval_id for found in calls if found.status == "waiting_for_approval" and found.approval_id
            ]

        return wait_until(waiting, timeout, "a call that waits for approval")[-1]

    def decide(self, approval_id: str, decision: str = "approve", by: str = "bob") -> None:
        """Decides a request."""
        made = approvals.Decision(approval_id, TENANT, "approve" if decision == "approve" else "deny", by)
        self.wake(self.run(approvals.decide(made, _shard(approval_id))).wake)

    def approval(self, approval_id: str) -> Approval:
        """A request as it is now."""
        found: Approval = self.run(approvals.read_approval(_shard(approval_id), TENANT, approval_id)).approvals[0]
        return found

    def cancel(self, run: Run) -> str:
        """Cancels a run; the answer."""
        reply: runs.CancelReply = self.run(runs.cancel_run(_shard(run.run_id), run.run_id, TENANT))
        self.wake(reply.wake)
        return reply.answer

    def journal(self, run: Run) -> list[Event]:
        """All events of a run."""
        return list(self.run(runs.read_journal(_shard(run.run_id), run.run_id, TENANT, 0)).events)

    def turn(self, did: str) -> Turn | None:
        """The logical turn of a delivery."""
        found = self.run(history.read_delivery(TENANT, self.session, "ops", "dana", did, SHARDS))
        return found.turns[0] if found and found.turns else None

    def words(self, did: str) -> list[str]:
        """What the handler noted about a delivery, in order."""
        return [line["word"] for line in self._lines() if line["run"] == f"{self.session}/{did}"]

    def started(self, did: str, times: int = 1, timeout: float = 20.0) -> None:
        """Waits until the handler of a delivery has been started so many times."""
        wait_until(lambda: self.words(did).count("start") >= times, timeout, f"start {times} of {did}")

    def gate(self, name: str) -> dict[str, str]:
        """A step that waits until `open(name)`."""
        return {"file": str(self.directory / f"gate-{self.session}-{name}")}

    def open(self, name: str) -> None:
        """Lets handlers through a gate."""
        (self.directory / f"gate-{self.session}-{name}").touch()

    def effects(self) -> list[str]:
        """Ids of all effects that happened, in order."""
        return [line["id"] for line in self.stack.effects()[self._effects_before :]]

    def arguments_left(self) -> list[str]:
        """Fields of the session's arguments that are left."""
        prefix, sid = self._place()
        return sorted(field.decode() for field in self.store.command([["HKEYS", f"{prefix}:args:{sid}"]])[0])

    def power_cut(self, worker: subprocess.Popen[bytes]) -> None:
        """Kills a worker, and its lease of the story's session ends."""
        self.stack.kill(worker)
        self.end_lease()

    def end_lease(self) -> None:
        """Ends the lease of the story's session; leases are long in these tests, so that no other ends by itself."""
        prefix, sid = self._place()
        self.store.command([["ZADD", f"{prefix}:owned", "XX", 1, sid]])

    def _place(self) -> tuple[str, str]:
        sid = session_hash(TENANT, self.session)
        return f"ml:{{{int(sid[:8], 16) % SHARDS:02x}}}", sid

    def _lines(self) -> list[dict[str, Any]]:
        if not self.turns_file.exists():
            return []
        return [json.loads(line) for line in self.turns_file.read_text(encoding="utf-8").splitlines()]


def _shard(any_id: str) -> int:
    shard = shard_of_id(any_id, SHARDS)
    assert shard is not None
    return shard
