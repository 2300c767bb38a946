"""The warning about an MCP tool that nothing protects, through a host's engine and through a handler (C-06)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.fake_section import fake_section
from tests.support.hosting import Hosting, message
from tests.support.tool_calls import FakeServer

PLAIN, DECLARED, READS = "mcp__fake__ok", "mcp__fake__no_structured", "mcp__fake__error_text"
MORE = f"""
[mcp.servers.fake.tools.error_text]
read_only = true
[mcp.aliases]
plain = "{PLAIN}"
"""
WARNING = "unprotected_mcp_tool"


@pytest.fixture
def host(store_url: str, tmp_path: Path) -> Iterator[Hosting]:
    made = Hosting(tmp_path / "stack", store_url, fake_section(FakeServer(tmp_path)) + MORE)
    made.stack.add_worker()
    yield made
    made.close()


def warnings(lines: list[Any]) -> list[Any]:
    return [line for line in lines if line["event"] == WARNING]


@pytest.mark.proves("C-06")
def test_an_engine_names_the_tool_once_and_never_its_arguments(host: Hosting) -> None:
    engine = host.engine()
    engine.register_mutation_tools({DECLARED})
    with capture_logs() as lines:
        results = [
            engine.handle_with_results(message(f"s{n}", (tool, {"secret": "hunter2hunter2", "n": n})))
            for n, tool in enumerate((PLAIN, "plain", PLAIN, DECLARED, READS))
        ]
    (line,) = warnings(lines)
    assert (line["tool"], line["protect_with"], line["log_level"]) == (PLAIN, "register_mutation_tools", "warning")
    assert "hunter2" not in repr(lines)
    # It changes nothing: all were executed, and what nothing protects has no entry.
    assert [result.calls[0]["status"] for result in results] == ["completed"] * 5
    assert [result.logical_turn_id is not None for result in results] == [False, False, False, True, False]
    assert [result.calls[0]["protected"] for result in results] == [False, False, False, True, False]


@pytest.mark.proves("C-06")
def test_a_handler_s_call_is_warned_of_by_its_worker(host: Hosting) -> None:
    engine = host.engine()
    steps = [{"call": tool, "arguments": {"secret": "hunter2hunter2", "n": n}} for n, tool in enumerate((PLAIN, PLAIN))]
    told = message("handled", handler="follow", text="handled", input=[*steps, {"call": READS, "arguments": {}}])
    narrated = engine.handle(told)
    assert [step["status"] for step in narrated] == ["completed"] * 3
    lines = [json.loads(line) for line in host.stack.logs().splitlines() if line.startswith("{")]
    (line,) = warnings(lines)
    assert (line["tool"], line["protect_with"], line["level"]) == (PLAIN, "register_mutation_tools", "warning")
    assert "hunter2" not in host.stack.logs()
