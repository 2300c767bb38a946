"""Row 20: tools that hang, answer late, by half or twice, die, flood, or ignore a cancel, over stdio and over HTTP."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.faults.harness.tally import Tally
from tests.faults.harness.traffic import Handed, Traffic
from tests.faults.harness.world import World, alive
from tests.support.fake_section import fake_section
from tests.support.tool_calls import FakeServer

TOOL_SECONDS = 1.5
DONE, UNKNOWN = "completed", "outcome_unknown"
# Tool -> its arguments, and what a call of it may come to.
STDIO: dict[str, tuple[dict[str, Any], set[str]]] = {
    "ok": ({}, {DONE}),
    "hang": ({}, {UNKNOWN}),
    "late": ({"seconds": 2.5}, {UNKNOWN}),
    "half": ({}, {UNKNOWN}),
    "twice": ({}, {DONE}),
    "exit": ({}, {UNKNOWN}),
    "flood": ({}, {DONE, UNKNOWN}),
    "noise": ({}, {DONE}),
    "stops_reading": ({}, {UNKNOWN}),
    "closes_output": ({}, {UNKNOWN}),
    "invalid_utf8": ({}, {UNKNOWN, DONE}),
    "answers_cancel": ({}, {UNKNOWN, DONE}),
}
HTTP: dict[str, tuple[dict[str, Any], set[str]]] = {
    "ok": ({}, {DONE}),
    "http_late": ({"seconds": 2.5}, {UNKNOWN}),
    "http_half": ({}, {UNKNOWN}),
    "drop": ({}, {UNKNOWN}),
    "sse": ({}, {DONE}),
    "sse_drop": ({}, {UNKNOWN}),
    "status_500": ({}, {UNKNOWN}),
    "status_202": ({}, {UNKNOWN}),
    "status_307": ({}, {UNKNOWN}),
}

IGNORE_CANCEL = ("hang", "late", "stops_reading", "http_late")


class Tools:
    """The two misbehaving servers, and what they saw as the harness wants it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "http").mkdir()
        # A child that ignores SIGTERM, and a server that does too: the worker must still get rid of both.
        self.stdio = FakeServer(folder, ignore_eof=True, ignore_term=True)
        self.http = FakeServer(folder / "http")
        self.http.start_http()

    def config(self) -> str:
        """Both as MCP servers, every tool of theirs a mutation."""
        names = [f"mcp__pipe__{tool}" for tool in STDIO] + [f"mcp__web__{tool}" for tool in HTTP]
        policy = "[policy]\nmutation_tools = [" + ", ".join(f'"{name}"' for name in names) + "]\n"
        return fake_section(self.stdio, name="pipe") + fake_section(self.http, name="web") + policy

    def effects(self) -> list[dict[str, Any]]:
        """Every call that reached a server, as lines of the harness."""
        return [
            {
                "id": event["arguments"]["id"],
                "session": event["arguments"]["session"],
                "mutation_id": event["meta"]["mutation-ledger/mutation_id"],
                "attempt": event["meta"]["mutation-ledger/attempt"],
                "tool": event["tool"],
                "pid": 0,
                "how": "ok",
                "entered": 0.0,
            }
            for server in (self.stdio, self.http)
            for event in server.events("effect")
        ]


def misbehaving_tools(
    folder: Path, seed: int, stdio: Sequence[str] = tuple(STDIO), http: Sequence[str] = tuple(HTTP)
) -> Tally:
    """Row 20, in an order of the seed, twice each, a cancel in the middle of some; workers and other work go on."""
    dice = random.Random(seed)
    tools = Tools(folder / "tools")
    try:
        config = tools.config()
        with World(folder, seed, config=config, tool_timeout_seconds=TOOL_SECONDS) as world:
            world.more_effects = tools.effects
            world.start(workers=2)
            traffic = world.traffic()
            asked = [("pipe", tool) for tool in stdio] + [("web", tool) for tool in http]
            handed = [
                (_deliver(world, traffic, server, tool, number), server, tool)
                for number, (server, tool) in enumerate(dice.sample(asked, len(asked)) * 2)
            ]
            for one, _, tool in handed[len(handed) // 2 :]:
                if tool in IGNORE_CANCEL:
                    world.api.post(f"/api/runs/{one.run_id}/cancel")
                    world.count("cancelled in flight")
            for one, server, tool in handed:
                _judge(world, one, server, tool)
            _still_served(world, traffic)
            traffic.finish()
            world.check(ended=True)
            if not all(alive(worker) for worker in world.stack.workers):
                world.violations.append("I4: a worker died of its tools")
            return Tally.of(world)
    finally:
        tools.http.stop_http()


def _deliver(world: World, traffic: Traffic, server: str, tool: str, number: int) -> Handed:
    arguments, _ = (STDIO if server == "pipe" else HTTP)[tool]
    session = f"t-{server}-{tool}-{number}"
    call = (f"mcp__{server}__{tool}", {**arguments, "id": session, "session": session, "secret": traffic.marker})
    world.count("plain call" if tool == "ok" else "misbehaving call")
    return traffic.deliver([call], session=session, delivery="d")


def _judge(world: World, handed: Handed, server: str, tool: str) -> None:
    ended = world.api.ended(handed.run_id, timeout=90)
    (call,) = ended["calls"]
    _, wanted = (STDIO if server == "pipe" else HTTP)[tool]
    # Calls over stdio share one process: what kills or blocks it takes the others with it, and while it is replaced
    # nothing is sent.
    shared = {UNKNOWN, "not_executed"} if server == "pipe" else set()
    if call["status"] not in {*wanted, *shared} and ended["status"] != "cancelled":
        world.violations.append(f"I4: a call of {server} {tool} is {call['status']}")


def _still_served(world: World, traffic: Traffic) -> None:
    """After all that, every server is called again; one that is being replaced just now is asked once more."""
    for server in ("pipe", "web"):
        for number in range(3):
            handed = _deliver(world, traffic, server, "ok", 1000 + number)
            if world.api.ended(handed.run_id, timeout=60)["status"] == "completed":
                break
        else:
            world.violations.append(f"I4: {server} is not called any more")
