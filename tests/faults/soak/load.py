"""The soak's load: so many sessions at once, each with its deliveries, through whatever front door answers."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from ledger.consumer import Outcome
from tests.faults.harness.traffic import Acknowledged, Handed
from tests.support.stack import AGENT, APPROVER, Api, Reply

CALL_SECONDS = 12.0
LOOK_SECONDS = 5.0
# Sizes of a session's deliveries, in turn, until it has its mutations.
SIZES = (1, 2, 3, 4)
ASKED_EVERY = 50
HOW = ("ok",) * 18 + ("fails", "breaks")


class Door:
    """A front door's address and one kept connection to it a thread."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._local = threading.local()
        self._kept: list[http.client.HTTPConnection] = []

    def post(self, path: str, body: Any) -> Reply | None:
        """The answer; None for a door that is away."""
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=CALL_SECONDS)
            self._local.connection = connection
            self._kept.append(connection)
        headers = {"Authorization": f"Bearer {AGENT}", "Content-Type": "application/json"}
        try:
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            raw = response.read()
            return Reply(response.status, json.loads(raw), dict(response.headers))
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            # It connects again when it is used again.
            connection.close()
            return None

    def close(self) -> None:
        """Closes what every thread kept."""
        for connection in self._kept:
            connection.close()


class Load:
    """`sessions` of `each` mutations, `at_once` of them under way. `doors` may be changed by anybody meanwhile."""

    def __init__(self, doors: list[Door], seed: int, *, sessions: int, each: int, at_once: int) -> None:
        self.doors = doors
        self.acks = Acknowledged()
        self.marker = f"marker-soak-{seed:x}"
        self.sessions = sessions
        self.each = each
        self.finished = 0
        self.admitted = 0
        self.heard = 0
        self.last_admission = 0.0
        self._seed = seed
        self._waiting: dict[str, set[str]] = {}
        self._known: dict[str, set[str]] = defaultdict(set)
        self._changed = threading.Condition()
        self._next = iter(range(sessions))
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, name=f"slot-{n}", daemon=True) for n in range(at_once)]
        self._threads.append(threading.Thread(target=self._decide, name="decider", daemon=True))

    def start(self) -> None:
        """Begins."""
        for thread in self._threads:
            thread.start()

    @property
    def over(self) -> bool:
        """Whether every session has all its outcomes, or a thread failed."""
        return self.finished >= self.sessions or bool(self._errors)

    @property
    def all_admitted(self) -> bool:
        """Whether there is nothing left to hand in."""
        return self.admitted >= self.sessions * self.each

    def stop(self) -> None:
        """Ends the threads; raises what any of them raised."""
        self._stop.set()
        for thread in self._threads:
            thread.join(CALL_SECONDS + 5)
        for door in self.doors:
            door.close()
        if self._errors:
            raise self._errors[0]

    def hear(self, outcome: Outcome) -> None:
        """An outcome was published."""
        with self._changed:
            self.heard += 1
            self._known[outcome.session_id].add(outcome.mutation_id)
            left = self._waiting.get(outcome.session_id)
            if left is not None:
                left.discard(outcome.mutation_id)
                if not left:
                    self._changed.notify_all()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                with self._lock:
                    number = next(self._next, None)
                if number is None:
                    return
                self._session(number, random.Random(f"{self._seed}-{number}"))
                with self._lock:
                    self.finished += 1
        except BaseException as error:  # shown by stop()
            self._errors.append(error)

    def _session(self, number: int, dice: random.Random) -> None:
        name = f"soak-{number}"
        handed = [self._deliver(name, body, dice) for body in self._bodies(name, dice)]
        wanted = {mutation for one in handed for mutation in one.mutations}
        with self._changed:
            self._waiting[name] = wanted - self._known.pop(name, set())
        looked = time.monotonic()
        while not self._stop.is_set() and not self._all_heard(name):
            if time.monotonic() - looked > LOOK_SECONDS:
                looked = time.monotonic()
                if self._ended(handed):
                    break
        with self._changed:
            del self._waiting[name]
            self._known.pop(name, None)

    def _all_heard(self, name: str) -> bool:
        """Whether every outcome of the session was heard, now or after a moment."""
        with self._changed:
            if self._waiting[name]:
                self._changed.wait(LOOK_SECONDS)
            return not self._waiting[name]

    def _bodies(self, name: str, dice: random.Random) -> Iterator[dict[str, Any]]:
        made = 0
        while made < self.each:
            size = min(SIZES[made % len(SIZES)], self.each - made)
            calls = [self._call(f"{name}-{made + at}", dice) for at in range(size)]
            made += size
            yield {"calls": calls, "on_error": "continue"}

    def _call(self, call_id: str, dice: random.Random) -> dict[str, Any]:
        arguments = {"id": call_id, "secret": f"{self.marker}-{call_id}", "how": dice.choice(HOW)}
        return {"tool": "ask_act" if dice.randrange(ASKED_EVERY) == 0 else "act", "arguments": arguments}

    def _deliver(self, session: str, body: dict[str, Any], dice: random.Random) -> Handed:
        """Sent again with the same id until it is acknowledged."""
        handed = Handed(session, f"d-{body['calls'][0]['arguments']['id']}", {})
        sent = {"session_id": session, "agent": "ops", "user": "dana", "delivery_id": handed.delivery, **body}
        while not self._stop.is_set():
            reply = dice.choice(self.doors).post("/api/trigger", sent)
            if reply is not None and reply.status in (200, 202):
                handed.run_id = reply.body["run_id"]
                handed.mutations = [call["mutation_id"] for call in reply.body["calls"]]
                break
            assert reply is None or reply.status in (429, 503), reply
            self.acks.refused += 1
            self._stop.wait(dice.uniform(0.05, 0.2))
        with self._lock:
            self.acks.handed.append(handed)
            self.admitted += len(handed.mutations)
            self.last_admission = time.monotonic()
        return handed

    def _ended(self, handed: Sequence[Handed]) -> bool:
        """Whether all runs have ended: a call that was never begun has no outcome."""
        for one in handed:
            try:
                reply = Api(self.doors[0].port, timeout=CALL_SECONDS).get(f"/api/runs/{one.run_id}")
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                return False
            if reply.status != 200 or reply.body["status"] not in ("completed", "failed", "cancelled"):
                return False
        return True

    def _decide(self) -> None:
        try:
            while not self._stop.wait(0.3):
                self._decide_all(Api(self.doors[-1].port, APPROVER, timeout=CALL_SECONDS))
        except BaseException as error:  # shown by stop()
            self._errors.append(error)

    def _decide_all(self, api: Api) -> None:
        try:
            reply = api.get("/api/approvals")
            for approval in reply.body["approvals"] if reply.status == 200 else ():
                self.acks.shown.add(approval["id"])
                said = api.post(f"/api/approvals/{approval['id']}", {"decision": "approve"})
                if said.status == 200:
                    self.acks.decisions[approval["id"]] = "approve"
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            return
