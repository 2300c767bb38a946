"""Deliveries, decisions and readers while things break; everything that was acknowledged is kept to be asked for."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.stack import Api, Reply
from tests.support.wait import wait_until

ENDED = ("completed", "failed", "cancelled")
HOW = ("ok", "ok", "ok", "ok", "fails", "breaks")
CALL_SECONDS = 12.0
TURNS_A_SESSION = 30
Call = tuple[str, dict[str, Any]]


@dataclass
class Handed:
    """One delivery: what was asked, and the run and mutations that were acknowledged."""

    session: str
    delivery: str
    body: dict[str, Any]
    run_id: str = ""
    mutations: list[str] = field(default_factory=list)
    ended: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Told:
    """What a front door said of a call once."""

    run_id: str
    index: int
    status: str


@dataclass
class Acknowledged:
    """Everything that anybody was told. `shown`: requests that people saw, however their decision was answered."""

    handed: list[Handed] = field(default_factory=list)
    decisions: dict[str, str] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    refused: int = 0
    shown: set[str] = field(default_factory=set)

    def copy(self) -> Acknowledged:
        """As of now; what is acknowledged while somebody checks comes too late to be held against the store."""
        handed = [replace(one) for one in list(self.handed)]
        return Acknowledged(handed, dict(self.decisions), list(self.told), self.refused, set(self.shown))

    @property
    def promises(self) -> int:
        """How many answers said that something is on record."""
        return sum(bool(one.run_id) for one in self.handed) + len(self.decisions) + len(self.told)

    @property
    def sessions(self) -> list[str]:
        """Every session in use."""
        return sorted({one.session for one in self.handed})


class Traffic:
    """Threads that deliver, decide and read through any of `apis` until `finish`."""

    def __init__(
        self,
        apis: Sequence[Api],
        seed: int,
        *,
        sessions: int = 10,
        pause: float = 0.08,
        slow: float = 0.0,
        handlers: bool = True,
        prefix: str = "t",
    ) -> None:
        self.apis = [Api(api.port, api.token, timeout=CALL_SECONDS) for api in apis]
        self.marker = f"marker-{prefix}-{seed:x}"
        self.acks = Acknowledged()
        self._dice = random.Random(seed)
        self._prefix = prefix
        self._sessions = sessions
        self._pause = pause
        self._slow = slow
        self._handlers = handlers
        self._stop = threading.Event()
        self._paused = threading.Event()
        self._undecided = threading.Event()
        self._errors: list[BaseException] = []
        self._calls = 0
        self._threads = [
            threading.Thread(target=self._run, args=(work, pause), name=work.__name__, daemon=True)
            for work, pause in ((self._deliver, pause), (self._decide, 0.15), (self._look, 0.1))
        ]

    def start(self) -> Traffic:
        """Begins."""
        for thread in self._threads:
            thread.start()
        return self

    def pause(self) -> None:
        """No new deliveries until `resume`; decisions and reads go on."""
        self._paused.set()

    def resume(self) -> None:
        """Deliveries again."""
        self._paused.clear()

    def hold_decisions(self) -> None:
        """Nobody here decides until `release_decisions`."""
        self._undecided.set()

    def release_decisions(self) -> None:
        """Decisions again."""
        self._undecided.clear()

    @contextlib.contextmanager
    def also_through(self, api: Api) -> Iterator[None]:
        """One front door more inside the block."""
        more = Api(api.port, api.token, timeout=CALL_SECONDS)
        self.apis.append(more)
        try:
            yield
        finally:
            self.apis.remove(more)

    def finish(self, timeout: float = 60.0) -> Acknowledged:
        """Stops delivering, gets every delivery acknowledged and waits until every run has ended."""
        self._paused.set()
        end = time.monotonic() + timeout
        self.require_sound()
        for handed in list(self.acks.handed):
            wait_until(lambda handed=handed: self.hand_in(handed), end - time.monotonic(), "an acknowledgement")  # type: ignore[misc]  # handed
        for handed in self.acks.handed:
            wait_until(lambda handed=handed: self._over(handed), end - time.monotonic(), f"run {handed.run_id} to end")  # type: ignore[misc]  # handed
        self.stop()
        return self.acks

    def require_sound(self) -> None:
        """Raises what a thread raised: without it, somebody waits for what nobody does."""
        if self._errors:
            raise self._errors[0]

    def stop(self) -> None:
        """Ends the threads; raises what any of them raised."""
        self._stop.set()
        for thread in self._threads:
            thread.join(CALL_SECONDS + 5)
        self.require_sound()

    def deliver(self, calls: Sequence[Call], *, session: str, delivery: str) -> Handed:
        """Hands in one plan now, whatever the answer."""
        body = {"calls": [{"tool": tool, "arguments": arguments} for tool, arguments in calls], "on_error": "continue"}
        handed = Handed(session, delivery, body)
        self.acks.handed.append(handed)
        self.hand_in(handed)
        return handed

    def _run(self, work: Callable[[], None], pause: float) -> None:
        try:
            while not self._stop.wait(pause * self._dice.uniform(0.5, 1.5)):
                work()
        except BaseException as error:  # shown by stop()
            self._errors.append(error)

    def _deliver(self) -> None:
        if self._paused.is_set():
            return
        # A session keeps 50 turns; what it forgets could not be checked any more.
        block = len(self.acks.handed) // (TURNS_A_SESSION * self._sessions)
        session = f"{self._prefix}-session-{block}-{self._dice.randrange(self._sessions)}"
        calls = [self._call() for _ in range(self._dice.choice((1, 1, 2, 3)))]
        if self._handlers and self._dice.random() < 0.2:
            body: dict[str, Any] = {"handler": "story", "input": calls}
        else:
            made = [{"tool": tool, "arguments": arguments} for tool, arguments in calls]
            body = {"calls": made, "on_error": "continue"}
        handed = Handed(session, f"{self._prefix}-delivery-{len(self.acks.handed)}", body)
        self.acks.handed.append(handed)
        self.hand_in(handed)

    def _call(self) -> Call:
        self._calls += 1
        arguments: dict[str, Any] = {"id": f"{self._prefix}-{self._calls}", "secret": f"{self.marker}-{self._calls}"}
        arguments["how"] = self._dice.choice(HOW)
        arguments["before"] = round(self._dice.uniform(0, 0.03), 3)
        if self._dice.random() < self._slow:
            arguments["after"] = 0.9
        return ("ask_act" if self._dice.random() < 0.25 else "act"), arguments

    def hand_in(self, handed: Handed) -> bool:
        """Whether the delivery is acknowledged; sent again with the same id until it is."""
        if handed.run_id:
            return True
        body = {
            "session_id": handed.session,
            "agent": "ops",
            "user": "dana",
            "delivery_id": handed.delivery,
            **handed.body,
        }
        reply = self._ask(lambda api: api.post("/api/trigger", body))
        if reply is None or reply.status == 429:
            return False
        assert reply.status in (200, 202), reply
        handed.mutations = [call["mutation_id"] for call in reply.body["calls"]]
        handed.run_id = reply.body["run_id"]
        return True

    def _decide(self) -> None:
        if self._undecided.is_set():
            return
        reply = self._ask(lambda api: api.as_("approver-token-1").get("/api/approvals"))
        assert reply is None or reply.status == 200, reply
        for approval in reply.body["approvals"] if reply else ():
            decision = "deny" if self._dice.random() < 0.1 else "approve"
            path = f"/api/approvals/{approval['id']}"
            self.acks.shown.add(approval["id"])
            said = self._ask(
                lambda api, path=path, decision=decision: api.as_("approver-token-1").post(path, {"decision": decision})  # type: ignore[misc]  # bound
            )
            if said is not None and said.status == 200:
                self.acks.decisions[approval["id"]] = decision

    def _look(self) -> None:
        open_runs = [handed for handed in self.acks.handed if handed.run_id and not handed.ended]
        if not open_runs:
            return
        handed = self._dice.choice(open_runs)
        self._over(handed)
        if self._dice.random() < 0.3:
            path = f"/api/runs/{handed.run_id}/events"
            self._ask(lambda api: api.get(path, Accept="application/x-ndjson"))

    def _over(self, handed: Handed) -> bool:
        """Whether the run has ended; what was said of its calls is kept."""
        if handed.ended:
            return True
        reply = self._ask(lambda api: api.get(f"/api/runs/{handed.run_id}"))
        if reply is None:
            return False
        assert reply.status == 200, (handed, reply)
        self.acks.told += [Told(handed.run_id, call["index"], call["status"]) for call in reply.body["calls"]]
        if reply.body["status"] in ENDED:
            handed.ended = reply.body
        return bool(handed.ended)

    def _ask(self, send: Callable[[Api], Reply]) -> Reply | None:
        """The answer; None for a front door that is away or in doubt."""
        try:
            reply = send(self._dice.choice(self.apis))
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            return None
        if reply.status == 503:
            self.acks.refused += 1
            assert "Retry-After" in reply.headers, reply
            return None
        return reply
