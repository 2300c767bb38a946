"""Server processes end with their worker, whatever they ignore (cases C05, F8, F9)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.tool_calls import FakeServer, alive, call_context, routed
from tests.support.wait import wait_until, wait_until_async

# A worker's loop with one call in flight, to be killed.
WORKER = """
import asyncio, json, sys
from ledger.config import McpServerConfig
from tests.support.tool_calls import call_context, routed

async def main():
    config = McpServerConfig.model_validate(json.loads(sys.argv[1]))
    async with routed(config) as router:
        await router.call("mcp__fake__" + sys.argv[2], json.loads(sys.argv[3]), call_context(60))

asyncio.run(main())
"""
ROOT = Path(__file__).parents[2]


def killed_worker(fake: FakeServer, tool: str, **arguments: object) -> float:
    """SIGKILL a worker whose call has arrived at the server; when that was."""
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, fake.stdio().model_dump_json(), tool, json.dumps(arguments)],
        cwd=ROOT,
    )
    wait_until(lambda: fake.events("received", method="tools/call"), 15, "the call to arrive")
    worker.kill()
    worker.wait()
    return time.monotonic()


@pytest.mark.parametrize(
    "settings",
    [{}, {"ignore_eof": True, "ignore_term": True, "child": True}],
    ids=["well behaved", "ignores everything and leaves a child"],
)
def test_no_server_process_is_left_ten_seconds_after_its_worker_was_killed(
    tmp_path: Path, settings: dict[str, bool]
) -> None:
    fake = FakeServer(tmp_path, **settings)
    killed = killed_worker(fake, "hang")
    wait_until(lambda: not alive(fake.pids()), 10, "the server's processes to be gone")
    assert time.monotonic() - killed < 10
    assert fake.effects() == 1


def test_a_killed_workers_server_may_finish_what_it_has_begun(tmp_path: Path) -> None:
    """Case C05: the effect lands once, after the worker is gone, and then the server goes too."""
    fake = FakeServer(tmp_path)
    killed_worker(fake, "slow", seconds=1.5)
    assert fake.effects() == 0
    wait_until(lambda: fake.effects() == 1, 5, "the effect of the call that was under way")
    wait_until(lambda: not alive(fake.pids()), 10, "the server's process to be gone")
    assert fake.effects() == 1


@pytest.mark.parametrize(
    "settings",
    [{}, {"child": True}, {"ignore_eof": True, "ignore_term": True, "child": True}],
    ids=["well behaved", "leaves a child", "ignores everything"],
)
def test_a_closed_router_leaves_no_process(tmp_path: Path, settings: dict[str, bool]) -> None:
    fake = FakeServer(tmp_path, **settings)

    async def main() -> None:
        async with routed(fake.stdio()) as router:
            await router.call("mcp__fake__ok", {}, call_context())

    asyncio.run(main())
    assert len(fake.pids()) == 1 + settings.get("child", False)
    assert not alive(fake.pids())


def test_closing_does_not_wait_for_a_handshake(tmp_path: Path) -> None:
    fake = FakeServer(tmp_path, no_list=True)

    async def main() -> float:
        async with routed(fake.stdio()):
            await wait_until_async(lambda: fake.events("received", method="tools/list"), 10, "the handshake")
            started = time.monotonic()
        return time.monotonic() - started

    assert asyncio.run(main()) < 8
    assert not alive(fake.pids())


def test_closing_waits_for_a_server_that_is_being_put_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handshake took too long; whoever closes then must not leave the rest of its end to nobody."""
    monkeypatch.setattr("workers.tools.connection.OPEN_SECONDS", 0.5)
    fake = FakeServer(tmp_path, no_list=True, ignore_eof=True, ignore_term=True)

    async def main() -> None:
        async with routed(fake.stdio()):
            await wait_until_async(lambda: fake.events("eof"), 10, "the server to be told to end")

    asyncio.run(main())
    assert len(fake.pids()) == 1
    assert not alive(fake.pids())


def test_a_server_is_out_of_reach_of_the_terminals_signals(tmp_path: Path) -> None:
    """Ctrl-C reaches the worker's group; its calls in flight must still be drained."""
    fake = FakeServer(tmp_path)

    async def main() -> None:
        async with routed(fake.stdio()) as router:
            await router.call("mcp__fake__ok", {}, call_context())
            (pid,) = fake.pids()
            assert os.getsid(pid) != os.getsid(0)
            assert os.getpgid(pid) != os.getpgid(0)

    asyncio.run(main())


def test_a_killed_launcher_takes_the_server_with_it(tmp_path: Path) -> None:
    fake = FakeServer(tmp_path, ignore_eof=True, ignore_term=True)

    async def main() -> None:
        async with routed(fake.stdio()) as router:
            await router.call("mcp__fake__ok", {}, call_context())
            (pid,) = fake.pids()
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(parent, signal.SIGKILL)
            wait_until(lambda: not alive({pid}), 5, "the server to die with its launcher")

    asyncio.run(main())
