"""The story itself: each step says what it does, looks, and fails the demo unless it saw what was promised."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ledger.client import Run
from ledger.demo.scene import LEASE_SECONDS, TENANT, Scene, StepFailed, fresh_session, kill_worker, until
from ledger.errors import Refused

CREATE, CREATE_SLOW = "mcp__dashboards__create", "mcp__dashboards__create_slow"
Say = Callable[[str, str], None]
"""Called with the step's name and one line of what was seen."""


def play(scene: Scene, say: Say) -> None:
    """Plays every step in order.

    Raises:
        StepFailed: a step did not hold.
        LedgerError: the stack answered what it should not have.
    """
    story = _Story(scene, say)
    story.approved_and_done()
    story.same_delivery_again()
    story.denied()
    story.worker_killed_in_the_middle()
    story.the_session_goes_on()
    story.stream_read_and_saved()
    story.reconciled_by_a_person()
    story.stream_read_from_the_cursor()


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise StepFailed(f"expected {what}")


class _Story:
    def __init__(self, scene: Scene, say: Say) -> None:
        self.scene = scene
        self.say = say
        self.session = fresh_session()
        self.first: dict[str, Any] = {}
        self.unknown: dict[str, Any] = {}

    def approved_and_done(self) -> None:
        """A delivery is admitted, asks, is approved by somebody else, and runs once."""
        call = {"tool": CREATE, "arguments": {"title": "Checkout errors"}}
        run = self._deliver("msg-1", call)
        asked = run["calls"][0]
        _expect(asked["status"] == "waiting_for_approval", "the call to wait for approval")
        self.say("admitted", f"delivery msg-1 waits for approval of {CREATE}")
        try:
            self.scene.agent.decide(asked["approval_id"] or "", "approve")
        except Refused as error:
            _expect(error.code == "requester_may_not_approve", "the requester to be refused")
        else:
            raise StepFailed("the requester approved its own call")
        decided = self._approve(asked["approval_id"])
        self.say("approved", f"by {decided['decided_by']}, not by the agent that asked (refused: it asked itself)")
        self.first = self._ended(run["run_id"])["calls"][0]
        _expect(self.first["outcome"]["status"] == "completed", "the outcome to be completed")
        self._effects(self.first["mutation_id"], 1)
        self.say("completed", "outcome on record; the tool server counts the effect once")

    def same_delivery_again(self) -> None:
        """A retry of the same delivery is refused with the record."""
        again = self._deliver("msg-1", {"tool": CREATE, "arguments": {"title": "Checkout errors"}})
        call = self._ended(again["run_id"])["calls"][0]
        _expect((call["refusal"] or {}).get("code") == "mutation_completed", "the refusal mutation_completed")
        self._effects(self.first["mutation_id"], 1)
        self.say("delivered again", "refused with mutation_completed, nobody was asked, still one effect")

    def denied(self) -> None:
        """The second proposal is denied: nothing runs and nothing is published."""
        run = self._deliver("msg-2", {"tool": CREATE, "arguments": {"title": "Everything"}})
        self.scene.approver.decide(run["calls"][0]["approval_id"] or "", "deny", comment="too broad")
        call = self._ended(run["run_id"])["calls"][0]
        _expect(call["status"] == "denied" and call["outcome"] is None, "a denial without an outcome")
        self._effects(call["mutation_id"], 0)
        self.say("denied", "the second proposal did not run; a denial is not a mutation outcome")

    def worker_killed_in_the_middle(self) -> None:
        """SIGKILL after the intent is on disk: nobody can know, and nobody tries again."""
        call = {"tool": CREATE_SLOW, "arguments": {"title": "Slow one", "seconds": 1.5, "seconds_after": 30}}
        run = self._deliver("msg-3", call)
        self._approve(run["calls"][0]["approval_id"])

        def started() -> bool:
            return self.scene.agent.run(run["run_id"])["calls"][0]["status"] == "running"

        until(started, 20, "the third call to run")
        pid = until(lambda: self.scene.owner_pid(self.session), 10, "the session's owner")
        kill_worker(pid)
        killed_at = time.monotonic()
        self.say("killed", f"SIGKILL to worker {pid}, after its intent was confirmed and the call was out")
        ended = self._ended(run["run_id"])
        took = time.monotonic() - killed_at
        self.unknown = ended["calls"][0]
        _expect(self.unknown["outcome"]["status"] == "outcome_unknown", "the outcome to be unknown")
        _expect(took < LEASE_SECONDS + 5, f"recovery within the lease and 5 s, not {took:.1f} s")
        self.say("recovered", f"another worker took over after {took:.1f} s and published outcome_unknown")
        until(lambda: self.scene.effects(self.unknown["mutation_id"]), 20, "the effect that the killed worker began")
        again = self._ended(self._deliver("msg-3", call)["run_id"])["calls"][0]
        _expect((again["refusal"] or {}).get("code") == "mutation_outcome_unknown", "the retry to be refused")
        self._effects(self.unknown["mutation_id"], 1)
        self.say("not repeated", "the retry is refused with mutation_outcome_unknown; the effect is there once")

    def the_session_goes_on(self) -> None:
        """The worker that took over owns the session and runs what comes next."""
        run = self._deliver("msg-4", {"tool": CREATE, "arguments": {"title": "After the crash"}})
        self._approve(run["calls"][0]["approval_id"])
        call = self._ended(run["run_id"])["calls"][0]
        _expect(call["outcome"]["status"] == "completed", "the next delivery to complete")
        self._effects(call["mutation_id"], 1)
        self.say("goes on", "the next delivery of the same session completed")

    def stream_read_and_saved(self) -> None:
        """A consumer reads all shards and saves its cursor."""
        seen = self.scene.read_stream()
        statuses = [(outcome.mutation_id, outcome.record["status"]) for outcome in seen]
        _expect((self.first["mutation_id"], "completed") in statuses, "the first outcome on the stream")
        _expect((self.unknown["mutation_id"], "outcome_unknown") in statuses, "the unknown outcome on the stream")
        self.say("streamed", f"{len(seen)} outcomes read with XREAD, outcome_unknown among them; cursor saved")

    def reconciled_by_a_person(self) -> None:
        """Somebody looked at the tool server and says what happened."""
        outcome = self.unknown["outcome"]
        turn, mutation = outcome["logical_turn_id"], outcome["mutation_id"]
        self.scene.run_command("reconcile", self.session, turn, mutation, "--completed", "--tenant", TENANT)
        records = {record["mutation_id"]: record for record in self.scene.agent.outcomes(self.session)}
        _expect(records[mutation]["status"] == "completed", "the reconciled outcome to be completed")
        self._effects(mutation, 1)
        self.say("reconciled", "`mutation-ledger reconcile ... --completed`: the unknown outcome is completed")

    def stream_read_from_the_cursor(self) -> None:
        """Reading on from the saved cursor brings exactly the reconciliation."""
        seen = [(outcome.mutation_id, outcome.record["status"]) for outcome in self.scene.read_stream()]
        _expect(seen == [(self.unknown["mutation_id"], "completed")], "only the reconciled outcome after the cursor")
        self.say("read on", "from the saved cursor: one outcome, the reconciled one")

    def _deliver(self, delivery_id: str, call: dict[str, Any]) -> Run:
        return self.scene.agent.trigger(self.session, [call], delivery_id=delivery_id, user="dana")

    def _approve(self, approval_id: str | None) -> dict[str, Any]:
        inbox = {approval["id"] for approval in self.scene.approver.approvals(session_id=self.session)}
        _expect(approval_id in inbox, "the request in the approver's inbox")
        return dict(self.scene.approver.decide(approval_id or "", "approve"))

    def _ended(self, run_id: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            run = self.scene.agent.run(run_id)
            return dict(run) if run["status"] in ("completed", "failed", "cancelled") else None

        return until(look, 30, f"run {run_id} to end")

    def _effects(self, mutation_id: str, count: int) -> None:
        seen = self.scene.effects(mutation_id)
        _expect(seen == count, f"{count} effect(s) at the tool server, not {seen}")
