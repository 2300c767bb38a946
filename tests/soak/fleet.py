"""The servers of the soak, what is asked of each, and what may come of it."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.fake_answers import HTTP_ANSWERS, STDIO_ANSWERS
from tests.support.tool_calls import FakeServer, alive

UNKNOWN, NOT_EXECUTED = "outcome_unknown", "not_executed"
NOTHING = "nothing"
"""No entry: cancelled, or refused, before an intent."""

STDIO = {tool: verdict.value for tool, verdict, _ in STDIO_ANSWERS} | {"late": "completed", "slow": "completed"}
# These end the connection, and with it every other call that is on it.
BREAKS = ("exit", "invalid_utf8", "huge_read")
STDIO_CALM = {tool: status for tool, status in STDIO.items() if tool not in BREAKS} | {"changes_list": "completed"}
SILENT = dict.fromkeys(("hang", "closes_output", "stops_reading", "answers_cancel"), UNKNOWN)
# Each call has a request of its own, so no answer spoils another's.
HTTP = {tool: verdict.value for tool, verdict, _ in HTTP_ANSWERS} | {
    "http_late": "completed",
    "sse_drop_id": UNKNOWN,
}
ARGUMENTS: dict[str, dict[str, Any]] = {tool: {"seconds": 0.1} for tool in ("late", "slow", "http_late")}


@dataclass(slots=True)
class Member:
    """One server: how often it is asked, its tools with the status that each answer proves, and how it behaves."""

    share: float
    tools: dict[str, str]
    settings: dict[str, Any] = field(default_factory=dict)
    http: bool = False
    rough: bool = False
    """Killed and cancelled at random: what it answers may be lost on the way."""
    ready: bool = True
    """Whether it ever comes to answer; if not, nothing is ever sent to it."""

    def may_become(self, tool: str) -> set[str]:
        """The statuses that a mutation of this tool may end in."""
        if not self.ready:
            return {NOT_EXECUTED}
        if self.rough:
            return {self.tools[tool], UNKNOWN, NOT_EXECUTED, NOTHING}
        if self.settings.keys() & {"gate", "die_on_probe"}:
            # Not yet there for a call, perhaps: then it was provably not sent.
            return {self.tools[tool], NOT_EXECUTED}
        return {self.tools[tool]}


def members(gate: Path) -> dict[str, Member]:
    """All servers by name; the one behind `gate` answers once that file is there."""
    stubborn = {"ignore_eof": True, "ignore_term": True, "child": True}
    return {
        "calm": Member(22, STDIO_CALM),
        "calm_modern": Member(12, STDIO_CALM, {"revision": "modern"}),
        "web": Member(20, HTTP, http=True),
        "web_modern": Member(12, HTTP, {"revision": "modern"}, http=True),
        "rough": Member(12, STDIO | SILENT, rough=True),
        "rough_modern": Member(6, STDIO | SILENT, {"revision": "modern"}, rough=True),
        "stubborn": Member(5, STDIO | SILENT, stubborn, rough=True),
        "web_rough": Member(5, HTTP, http=True, rough=True),
        "probed": Member(3, STDIO_CALM, {"die_on_probe": True}),
        "gated": Member(2, STDIO_CALM, {"gate": str(gate)}),
        "mute": Member(0.5, {"ok": NOT_EXECUTED}, {"revision": "neither"}, ready=False),
        "unlisted": Member(0.5, {"ok": NOT_EXECUTED}, {"no_list": True}, ready=False),
    }


@dataclass(slots=True)
class Fleet:
    """The members with their servers."""

    members: dict[str, Member]
    fakes: dict[str, FakeServer]

    @classmethod
    def start(cls, directory: Path) -> Fleet:
        """Makes all servers; those that speak HTTP run, the worker starts the others."""
        found = members(directory / "gate")
        fakes = {}
        for name, member in found.items():
            (directory / name).mkdir(parents=True)
            # A flood of the usual size costs the worker seconds, in which others run out of time.
            fakes[name] = FakeServer(directory / name, flood=1000, **member.settings)
            if member.http:
                fakes[name].start_http()
        return cls(found, fakes)

    def stop(self) -> None:
        """Ends those that run by themselves."""
        for fake in self.fakes.values():
            fake.stop_http()

    def pick(self, dice: random.Random) -> tuple[str, str, dict[str, Any]]:
        """A server, a tool, and its arguments."""
        (name,) = dice.choices(list(self.members), [member.share for member in self.members.values()])
        tool = dice.choice(list(self.members[name].tools))
        return name, tool, dict(ARGUMENTS.get(tool, {}))

    def disturb(self, dice: random.Random) -> str:
        """Kills one rough server; one that speaks HTTP is back at once."""
        name = dice.choice([name for name, member in self.members.items() if member.rough])
        fake = self.fakes[name]
        if self.members[name].http:
            fake.stop_http()
            fake.start_http()
            return name
        started = [line["pid"] for line in fake.events("start")]
        if started and alive({started[-1]}):
            os.kill(started[-1], signal.SIGKILL)
        return name

    def crowds(self) -> dict[str, int]:
        """How many processes live of each server that the worker starts."""
        started = {name: fake for name, fake in self.fakes.items() if not self.members[name].http}
        return {name: len(alive(fake.pids())) for name, fake in started.items()}

    def effects(self) -> dict[str, int]:
        """How often each mutation had its effect, by the servers' own logs."""
        found: dict[str, int] = {}
        for fake in self.fakes.values():
            for line in fake.events("effect"):
                mutation = line["meta"]["mutation-ledger/mutation_id"]
                found[mutation] = found.get(mutation, 0) + 1
        return found

    def processes(self, *, ready: bool = True) -> set[int]:
        """Those that live of all that a worker started as, or under, a server; `ready` False: that never answers."""
        pids: set[int] = set()
        for name, fake in self.fakes.items():
            member = self.members[name]
            if not member.http and (ready or not member.ready):
                pids |= fake.pids()
        return alive(pids)
