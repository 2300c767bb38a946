"""Calls to servers that fail in every way that `tests/support/fake_mcp.py` knows: right statuses, and nothing leaks.

`make soak-tools` makes 2,000 calls and shows what they came to; `make test` makes 200. `SOAK_SEED` plays one again.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ledger.config import RedisConfig
from ledger.engine import Engine, TurnResult
from ledger.ids import shard_of_id
from ledger.runs import read_run
from ledger.store import StoreSettings, SyncStore
from tests.soak.fleet import NOTHING, Fleet
from tests.soak.probe import PROBE
from tests.soak.vitals import Vitals, vitals
from tests.support.fake_section import fake_section
from tests.support.hosting import Hosting, message
from tests.support.tool_calls import alive
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

CALLS = int(os.environ.get("SOAK_CALLS", "140"))
SEED = int(os.environ.get("SOAK_SEED", random.randrange(2**32)))
SESSIONS = max(20, CALLS // 40)
CANCELS = 0.1
"""Of the calls to rough servers, how many are cancelled on the way."""
DISTURB_SECONDS = 2.0
FDS_MORE = 4
"""Idle connections to HTTP servers come and go; a leak at every kill or cancel would be dozens."""
RSS_GROWTH_KIB = 48 * 1024
TIMING = {
    "lease_seconds": 20.0,
    "cancel_drain_seconds": 0.5,
    "tool_timeout_seconds": 15.0,
    "stop_drain_seconds": 5.0,
}


@dataclass(slots=True)
class Made:
    """One call that was made."""

    server: str
    tool: str
    session: str
    mutation_id: str
    cancelled: bool
    seconds: float


class Soak:
    """A worker, its servers, and the host that calls."""

    def __init__(self, directory: Path, url: str) -> None:
        self.dice = random.Random(SEED)
        self.gate = directory / "servers" / "gate"
        self.fleet = Fleet.start(directory / "servers")
        sections = "".join(fake_section(fake, name=name) for name, fake in self.fleet.fakes.items())
        tools = [f"mcp__{name}__{tool}" for name, member in self.fleet.members.items() for tool in member.tools]
        policy = f"[policy]\nmutation_tools = {json.dumps(tools)}\n"
        self.host = Hosting(directory / "stack", url, sections + policy, modules=("tests.soak.probe",), timing=TIMING)
        self.worker = self.host.stack.add_worker()
        self.engine: Engine = self.host.engine()
        self.store = SyncStore(StoreSettings(RedisConfig(url=url)))
        self.made: list[Made] = []
        self.disturbed = self.late = 0
        self._numbers = iter(range(10**9))

    def close(self) -> None:
        """Ends everything."""
        self.store.close()
        self.host.close()
        self.fleet.stop()

    # Calling

    async def run(self, calls: int) -> None:
        """Makes `calls` calls, spread over sessions that each make one after the other; prints how far it is."""
        began, goal = time.monotonic(), len(self.made) + calls
        plans: dict[str, list[tuple[str, str, dict[str, object]]]] = defaultdict(list)
        for n in range(calls):
            plans[f"soak-{n % SESSIONS}"].append(self.fleet.pick(self.dice))
        sessions = [asyncio.create_task(self._session(name, plan)) for name, plan in plans.items()]
        disturbing = asyncio.create_task(self._disturb())
        try:
            pending: set[asyncio.Task[None]] = set(sessions)
            while pending:
                done, pending = await asyncio.wait(pending, timeout=10)
                for task in done:
                    task.result()
                print(f"  {len(self.made):5} of {goal} calls, {time.monotonic() - began:5.0f} s", flush=True)
        finally:
            for task in (disturbing, *sessions):
                task.cancel()

    async def _session(self, session: str, plan: list[tuple[str, str, dict[str, object]]]) -> None:
        for server, tool, arguments in plan:
            await self._call(session, server, tool, arguments)

    async def _call(self, session: str, server: str, tool: str, arguments: dict[str, object]) -> None:
        n, began = next(self._numbers), time.monotonic()
        told = message(session, (f"mcp__{server}__{tool}", {**arguments, "n": n}), delivery_id=f"d{n}")
        cancels = self.fleet.members[server].rough and self.dice.random() < CANCELS
        if cancels:
            begun = await self.engine.handle_async(told, wait_seconds=0)
            await asyncio.sleep(self.dice.random() * 0.3)
            await asyncio.to_thread(self.engine.cancel_run, begun.run_id)
        result = await self.engine.handle_async(told) if not cancels else await self._ended(begun)
        took = time.monotonic() - began
        self.made.append(Made(server, tool, session, result.calls[0]["mutation_id"], cancels, took))

    async def _ended(self, begun: TurnResult) -> TurnResult:
        """A cancelled run's end; handing the delivery in again would be a redelivery, and run it."""
        shard = shard_of_id(begun.run_id, 16)
        assert shard is not None
        call = read_run(shard, begun.run_id, "acme")
        while True:
            found = (await asyncio.to_thread(self.store.run, call)).run
            assert found is not None
            if found.status.ended:
                return begun
            await asyncio.sleep(0.05)

    async def _disturb(self) -> None:
        while True:
            await asyncio.sleep(DISTURB_SECONDS)
            await asyncio.to_thread(self.fleet.disturb, self.dice)
            self.disturbed += 1

    # Looking

    def rest(self) -> Vitals:
        """Every server that can answer is connected to, then the worker is looked at when nothing changes any more."""
        self._greet(name for name, member in self.fleet.members.items() if member.ready)
        seen: list[Vitals] = []
        due = time.monotonic()

        def still() -> bool:
            nonlocal due
            if time.monotonic() < due:
                return False
            due = time.monotonic() + 1.5
            seen.append(self.look())
            crowds = self.fleet.crowds()
            gone = [name for name, count in crowds.items() if self.fleet.members[name].ready and not count]
            # One that died of an earlier call is to be there again, as it was the time before.
            self._greet(gone)
            if gone or self.fleet.processes(ready=False):
                # Still being opened for a call whose time was over long ago.
                seen.clear()
            return len(seen) >= 4 and len({(one.tasks, one.fds, one.children) for one in seen[-4:]}) == 1

        wait_until(still, 120, "the worker to come to rest")
        return seen[-1]

    def _greet(self, names: Iterable[str]) -> None:
        for name in names:
            n = next(self._numbers)
            self.engine.handle_with_results(message(f"rest-{n}", (f"mcp__{name}__ok", {"n": n})))

    def look(self) -> Vitals:
        """The worker now."""
        told = message(f"probe-{next(self._numbers)}", (PROBE, {}))
        inside = self.engine.handle_with_results(told).calls[0]["result"]
        return vitals(self.worker.pid, inside)

    def statuses(self) -> dict[str, str]:
        """The published status of each call's mutation."""
        return {mutation: str(record["status"]) for mutation, record in self.records().items()}

    def records(self) -> dict[str, dict[str, object]]:
        """Every published outcome of the calls, by mutation."""
        sessions = {made.session for made in self.made}
        return {
            record["mutation_id"]: record
            for session in sessions
            for record in self.engine.sessions.mutation_outcomes(session)
        }

    def wrong(self) -> Iterator[str]:
        """What does not fit the servers' own logs of what they did."""
        records, statuses, effects = self.records(), self.statuses(), self.fleet.effects()
        for made in self.made:
            status, seen = statuses.get(made.mutation_id, NOTHING), effects.get(made.mutation_id, 0)
            member = self.fleet.members[made.server]
            happened = {"completed": {1}, "failed": {1}, "outcome_unknown": {0, 1}}.get(status, {0})
            if not member.rough and status == "outcome_unknown":
                happened = {1}
            may = member.may_become(made.tool)
            if made.cancelled and made.tool == "answers_cancel":
                # Its result came inside the drain.
                may = may | {"completed"}
            if status not in may or seen not in happened:
                reason = records.get(made.mutation_id, {}).get("reason")
                if reason == "execution_timeout" and seen == 1 and made.seconds >= TIMING["tool_timeout_seconds"]:
                    # The machine was slow, and the status says just that.
                    self.late += 1
                    continue
                cancelled = " cancelled" * made.cancelled
                yield f"{made.server}.{made.tool}: {status} ({reason}) with {seen} effects{cancelled}"

    def table(self) -> str:
        """Calls by server and status."""
        statuses, effects = self.statuses(), self.fleet.effects()
        rows: dict[str, Counter[str]] = {name: Counter() for name in self.fleet.members}
        for made in self.made:
            rows[made.server][statuses.get(made.mutation_id, NOTHING)] += 1
            rows[made.server]["effects"] += effects.get(made.mutation_id, 0)
        columns = ("completed", "failed", "outcome_unknown", "not_executed", NOTHING, "effects")
        head = f"{'server':<14}" + "".join(f"{column:>17}" for column in columns)
        lines = [f"{name:<14}" + "".join(f"{row[column]:>17}" for column in columns) for name, row in rows.items()]
        return "\n".join([head, *lines])


@pytest.fixture
def soak(tmp_path: Path, valkey: ValkeyProcess) -> Iterator[Soak]:
    made = Soak(tmp_path, valkey.url)
    yield made
    made.close()


@pytest.mark.soak
@pytest.mark.proves("C-54", "C-55", "C-56")
@pytest.mark.timeout(3000)
def test_whatever_servers_do_nothing_leaks_and_every_status_is_right(soak: Soak) -> None:
    print(f"\n{CALLS} calls, seed {SEED}")
    warm_up = max(60, CALLS // 5)
    asyncio.run(soak.run(warm_up))
    soak.gate.touch()
    before = soak.rest()
    print(f"after {warm_up} calls: {before}\n{soak.fleet.crowds()}")
    asyncio.run(soak.run(CALLS - warm_up))
    after = soak.rest()
    print(f"after {CALLS} calls: {after}\n{soak.fleet.crowds()}\n{soak.table()}")
    print(f"{soak.disturbed} servers killed, seed {SEED}")
    wrong = list(soak.wrong())
    print("\n".join(wrong) or f"every status is right; {soak.late} calls ran out of time on this machine")
    assert len(soak.made) == CALLS
    assert wrong == [], f"seed {SEED}"
    more = {name: count - before.by_name.get(name, 0) for name, count in after.by_name.items()}
    more = {name: count for name, count in more.items() if count}
    print(f"tasks more or fewer: {more}")
    crowded = {name: told for name, told in after.connections.items() if len(told) > 1}
    assert crowded == {}, f"seed {SEED}"
    assert after.tasks <= before.tasks, f"seed {SEED}: {more}"
    assert after.fds <= before.fds + FDS_MORE, f"seed {SEED}"
    assert after.children <= before.children, f"seed {SEED}"
    assert after.threads <= before.threads + 2, f"seed {SEED}"
    assert after.rss_kib - before.rss_kib < RSS_GROWTH_KIB, f"seed {SEED}"
    running = soak.fleet.processes()
    soak.host.stack.stop()
    wait_until(lambda: not alive(running | soak.fleet.processes()), 15, "every server process to be gone")
