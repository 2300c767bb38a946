"""The sample server's effects can be counted, and `doctor` says what is wrong with a server."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.config import Config, McpConfig, McpServerConfig, ToolPolicy
from tests.support.tool_calls import FakeServer, call_context, call_one, routed
from tests.support.valkey import free_port
from tests.support.wait import wait_until
from workers import checks
from workers.tools import Verdict

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "workers.samples.dashboards"]


@pytest.fixture(params=["stdio", "http"])
def sample(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[McpServerConfig, Path]]:
    """The sample server on each transport, and its file."""
    file = tmp_path / "dashboards.jsonl"
    if request.param == "stdio":
        yield McpServerConfig(command=COMMAND, env={"DASHBOARDS_FILE": str(file)}, cwd=str(ROOT)), file
        return
    port = free_port()
    process = subprocess.Popen(
        [*COMMAND, "--http", str(port)], cwd=ROOT, env={"DASHBOARDS_FILE": str(file)}, stderr=subprocess.DEVNULL
    )
    config = McpServerConfig(url=f"http://127.0.0.1:{port}/mcp")
    wait_until(lambda: next(iter(checks.mcp_servers(configured(config))))[1], 20, "the sample server to listen")
    yield config, file
    process.terminate()
    process.wait()


def configured(server: McpServerConfig) -> Config:
    return Config(mcp=McpConfig(servers={"fake": server}))


def test_the_sample_server_keeps_dashboards(sample: tuple[McpServerConfig, Path]) -> None:
    config, file = sample

    async def main() -> None:
        async with routed(config) as router:
            created = await router.call("mcp__fake__create", {"title": "Checkout errors"}, call_context())
            assert created.verdict is Verdict.COMPLETED
            dashboard = created.content["structuredContent"]  # type: ignore[index]  # the sample's own shape
            patch = {"id": dashboard["id"], "changes": {"title": "Checkout"}}
            assert (await router.call("mcp__fake__patch", patch, call_context())).verdict is Verdict.COMPLETED
            listed = await router.call("mcp__fake__list", {}, call_context())
            assert listed.content["structuredContent"]["result"] == [  # type: ignore[index]  # as above
                {**dashboard, "title": "Checkout"}
            ]
            missing = {"id": "absent", "changes": {}}
            assert (await router.call("mcp__fake__patch", missing, call_context())).verdict is Verdict.FAILED

    asyncio.run(main())
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["op"], line["mutation_id"], line["attempt"]) for line in lines] == [
        ("create", "5" * 64, "attempt-1"),
        ("patch", "5" * 64, "attempt-1"),
    ]


def test_a_slow_create_happens_once_though_nobody_waits(sample: tuple[McpServerConfig, Path]) -> None:
    config, file = sample

    async def main() -> None:
        async with routed(config) as router:
            await router.call("mcp__fake__list", {}, call_context())
            slow = {"title": "t", "seconds": 0.6}
            reply = await router.call("mcp__fake__create_slow", slow, call_context(0.3))
            assert (reply.verdict, reply.reason) == (Verdict.OUTCOME_UNKNOWN, "execution_timeout")
            assert not file.exists()
            await asyncio.to_thread(wait_until, file.exists, 5, "the effect")

    asyncio.run(main())
    assert len(file.read_text().splitlines()) == 1


def test_doctor_lists_tools_and_names_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "LIMIT_SECONDS", 3.0)
    fake = FakeServer(tmp_path)
    servers = {
        "a": fake.stdio(tools={"ok": ToolPolicy(human="approve")}),
        "b": fake.stdio(tools={"okay": ToolPolicy(human="approve")}),
        "c": McpServerConfig(command=[str(tmp_path / "absent")]),
        "d": McpServerConfig(url=f"http://127.0.0.1:{free_port()}/mcp"),
        "e": FakeServer(tmp_path, no_list=True).stdio(),
        "f": fake.stdio(cwd=str(tmp_path / "absent")),
        "g": McpServerConfig(url="http://127.0.0.1:9/mcp", headers={"Authorization": "env:NO_SUCH_TOKEN"}),
        "h": FakeServer(tmp_path, die_on_probe=True).stdio(),
    }
    found = list(checks.mcp_servers(Config(mcp=McpConfig(servers=servers))))
    assert [(name, ok) for name, ok, _ in found] == [(f"mcp server {name}", name in "ah") for name in sorted(servers)]
    details = dict(zip(sorted(servers), (detail for _, _, detail in found), strict=True))
    assert details["a"].endswith(" tools")
    assert details["b"] == "configured tools that it does not have: okay"
    assert "absent: No such file or directory" in details["c"]
    assert details["d"] == "HTTP ConnectError"
    assert details["e"] == "no tool list within 3 s"
    assert "No such file or directory" in details["f"]
    assert "NO_SUCH_TOKEN" in details["g"]


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("tool", ["ok", "surrogate", "invalid_utf8", "bad_content", "error_32602", "drop"])
def test_no_arguments_and_no_replies_in_any_log(
    tmp_path: Path, transport: str, tool: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    fake = FakeServer(tmp_path)
    if transport == "http":
        fake.start_http()
    with caplog.at_level(logging.DEBUG):
        config = fake.http() if transport == "http" else fake.stdio()
        call_one(config, tool, email="alice-test@example.invalid")
    fake.stop_http()
    assert fake.effects() == 1
    out, err = capfd.readouterr()
    for text in ("alice-test", "T-42", "the server says no", "not-a-list"):
        assert text not in caplog.text + out + err
