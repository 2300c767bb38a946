"""Row 24: fifty threads decide one approval at once, in every way that decisions can meet."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.harness.tally import Tally
from tests.faults.harness.traffic import Traffic
from tests.faults.harness.world import World
from tests.support.stack import APPROVER, Api, Reply
from tests.support.wait import wait_until

THREADS = 50
CAROL, REQUESTER, FOREIGN = "carol-token-1", "asker-token-1", "foreign-token-1"
TIMEOUT = 3.0


def _token(token: str, name: str, tenant: str, roles: Sequence[str]) -> str:
    digest = hashlib.sha256(token.encode()).hexdigest()
    lines = {"name": name, "tenant": tenant, "roles": list(roles), "sha256": digest, "act_for_users": True}
    return "[[tokens]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items())


CONFIG = f"[policy]\napproval_timeout_seconds = {TIMEOUT}\n" + "".join(
    (
        _token(CAROL, "carol", "acme", ["approve"]),
        _token(REQUESTER, "asker", "acme", ["trigger", "approve"]),
        _token(FOREIGN, "mallory", "globex", ["approve"]),
    )
)


@dataclass(frozen=True)
class Asked:
    """One call that waits for a person."""

    session: str
    run_id: str
    approval_id: str


def approval_races(folder: Path, seed: int, rounds: int = 2) -> Tally:
    """Row 24. After each race the call was made exactly if one entitled person's yes came first, and once."""
    with World(folder, seed, config=CONFIG) as world:
        world.start(doors=2, workers=2)
        # Started for its record of what was acknowledged; it delivers and decides nothing by itself.
        traffic = world.traffic()
        traffic.pause()
        traffic.hold_decisions()
        for number in range(rounds):
            for race in RACES:
                _Race(world, traffic, f"t-{race.__name__.strip('_')}-{number}").run(race)
        traffic.release_decisions()
        traffic.resume()
        wanted = world.mutations() + 10
        wait_until(lambda: world.mutations() >= wanted, 30, "ordinary work after the races")
        traffic.finish()
        world.check(ended=True)
        return Tally.of(world)


class _Race:
    """Fifty threads on one approval. `say` is what one of them does."""

    def __init__(self, world: World, traffic: Traffic, session: str) -> None:
        self.world = world
        self.session = session
        self._traffic = traffic
        self.seen: Counter[tuple[int, str]] = Counter()
        self.winners: set[str] = set()

    def run(self, race: Callable[[_Race], None]) -> None:
        """The race, and what must hold after any."""
        race(self)
        self.world.count(race.__name__.strip("_").replace("_", " "))

    def ask(self) -> Asked:
        """A delivery whose one call waits for a person."""
        call = ("ask_act", {"id": self.session, "secret": self._traffic.marker})
        handed = self._traffic.deliver([call], session=self.session, delivery="d")
        approval = self.world.api.run(handed.run_id)["calls"][0]["approval_id"]
        return Asked(self.session, handed.run_id, approval)

    def at_once(self, asked: Asked, *sides: tuple[str, str]) -> None:
        """Fifty threads, the sides (token, decision) in turn, through both front doors."""
        together = threading.Barrier(THREADS)
        lock = threading.Lock()

        def decide(number: int) -> None:
            token, decision = sides[number % len(sides)]
            api = self.world.apis[number % len(self.world.apis)].as_(token)
            together.wait(20)
            reply = _decide(api, asked.approval_id, decision)
            with lock:
                self.seen[reply.status, reply.body.get("code", reply.body.get("state", ""))] += 1
                if reply.status == 200:
                    self.winners.add(f"{reply.body['decided_by']} {reply.body['state']}")
                    self._traffic.acks.decisions[asked.approval_id] = decision

        threads = [threading.Thread(target=decide, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

    def only(self, *wanted: tuple[int, str]) -> None:
        """Nothing but these answers came."""
        if not self.seen.keys() <= set(wanted):
            self.wrong(f"answers {dict(self.seen)}")

    def made(self, asked: Asked, times: int) -> None:
        """How often the tool saw the call, once its run has ended."""
        self.world.api.ended(asked.run_id, timeout=30)
        found = len(self.world.effects_of(asked.session))
        if found != times:
            self.wrong(f"the call was made {found} times, not {times}")

    def wrong(self, what: str) -> None:
        """A violation."""
        self.world.violations.append(f"I7: {self.session}: {what}")


def _decide(api: Api, approval_id: str, decision: str) -> Reply:
    return api.post(f"/api/approvals/{approval_id}", {"decision": decision})


def _double_click(race: _Race) -> None:
    asked = race.ask()
    race.at_once(asked, (APPROVER, "approve"))
    race.only((200, "approved"))
    race.made(asked, 1)


def _two_people(race: _Race) -> None:
    asked = race.ask()
    race.at_once(asked, (APPROVER, "approve"), (CAROL, "deny"))
    race.only((200, "approved"), (200, "denied"), (409, "already_decided"))
    if len(race.winners) != 1:
        race.wrong(f"two decisions won: {race.winners}")
    race.made(asked, 1 if race.winners == {"bob approved"} else 0)


def _replay(race: _Race) -> None:
    asked = race.ask()
    _decide(race.world.api.as_(APPROVER), asked.approval_id, "approve")
    race.made(asked, 1)
    race.at_once(asked, (APPROVER, "approve"), (CAROL, "approve"), (APPROVER, "deny"))
    race.only((200, "approved"), (409, "already_decided"))
    race.made(asked, 1)


def _not_entitled(race: _Race) -> None:
    asker = race.world.api.as_(REQUESTER)
    body = {"session_id": race.session, "agent": "asker", "user": "dana", "delivery_id": "d"}
    call = {"tool": "ask_act", "arguments": {"id": race.session}}
    run = asker.post("/api/trigger", {**body, "calls": [call]}).body
    asked = Asked(race.session, run["run_id"], run["calls"][0]["approval_id"])
    race.at_once(asked, (REQUESTER, "approve"), (FOREIGN, "approve"))
    race.only((403, "requester_may_not_approve"), (404, "not_found"))
    if race.world.effects_of(race.session):
        race.wrong("made without an approval")
    _decide(race.world.api.as_(APPROVER), asked.approval_id, "deny")
    wait_until(lambda: asker.get(f"/api/runs/{asked.run_id}").body["status"] == "failed", 20, "the denied run to end")
    if race.world.effects_of(race.session):
        race.wrong("made although it was denied")


def _expired(race: _Race) -> None:
    asked = race.ask()
    approver = race.world.api.as_(APPROVER)
    wait_until(
        lambda: approver.get(f"/api/approvals/{asked.approval_id}").body["state"] == "expired",
        TIMEOUT + 10,
        "the request to run out",
    )
    race.at_once(asked, (APPROVER, "approve"), (CAROL, "deny"))
    race.only((409, "approval_expired"))
    race.made(asked, 0)


def _cancelled(race: _Race) -> None:
    asked = race.ask()
    cancel = threading.Thread(target=lambda: race.world.api.post(f"/api/runs/{asked.run_id}/cancel"))
    cancel.start()
    race.at_once(asked, (APPROVER, "approve"))
    cancel.join(30)
    race.only((200, "approved"), (409, "approval_cancelled"))
    ended = race.world.api.ended(asked.run_id, timeout=30)
    status, made = ended["calls"][0]["status"], len(race.world.effects_of(asked.session))
    if made > 1 or (status == "cancelled" and made) or (status == "completed" and not made):
        race.wrong(f"cancelled and approved at once: {status}, made {made} times")


RACES: tuple[Callable[[_Race], None], ...] = (
    _double_click,
    _two_people,
    _replay,
    _not_entitled,
    _expired,
    _cancelled,
)
