"""The misbehaving server, over stdio and HTTP, behind a real front door and a real worker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.fake_section import fake_section
from tests.support.stack import Api, Stack, quick_section
from tests.support.tool_calls import FakeServer
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

TOOLS = {
    "plain": (
        *("ok", "exit", "wrong_structured", "no_structured", "bad_content", "is_error", "error_text", "null_flag"),
        *("error_32602", "error_32603", "input_required", "hang", "late", "noise", "bad_flag", "invalid_utf8"),
    ),
    "modern": ("ok", "input_required", "input_required_with_content", "wrong_structured"),
    "silent": ("ok",),
    "web": (
        *("ok", "status_202", "status_404", "status_410", "status_500", "status_502", "drop", "sse_drop"),
        *("sse_drop_id", "is_error", "input_required"),
    ),
}


class CaseServers:
    """`plain` and `modern` speak over stdio, `silent` never lists its tools, `web` speaks HTTP; every tool of theirs
    is a declared mutation. `api` is the host's view.
    """

    def __init__(self, directory: Path, server: ValkeyProcess, more: str = "") -> None:
        self.server = server
        self.fakes = {name: FakeServer(_made(directory / name), **_SETTINGS.get(name, {})) for name in TOOLS}
        self.fakes["web"].start_http()
        sections = "".join(fake_section(fake, name=name) for name, fake in self.fakes.items())
        tools = [f"mcp__{name}__{tool}" for name, known in TOOLS.items() for tool in known]
        policy = f"[policy]\nmutation_tools = {json.dumps(tools)}\n"
        plugins = '[plugins]\nmodules = ["tests.support.case_tools"]\n'
        config = quick_section(lease=2.0, tool_timeout_seconds=3.0) + sections + policy + plugins + more
        self.stack = Stack(directory / "stack", server.url, config)
        self.api: Api = self.stack.add_front_door()
        self.stack.add_worker()

    def call(self, server: str, tool: str, session: str, *, did: str = "d1", **arguments: Any) -> dict[str, Any]:
        """One call as a delivery of its own, waited for; the call as the API shows it."""
        name = f"mcp__{server}__{tool}"
        run = self.api.trigger(session, did, [(name, {"case": session, **arguments})]).body
        ended = self.api.ended(run["run_id"])
        call: dict[str, Any] = ended["calls"][0]
        return call

    def sent(self, server: str, session: str) -> int:
        """How often a call of this session reached the server."""
        lines = self.fakes[server].events("effect")
        return len([line for line in lines if line["arguments"].get("case") == session])

    def starts(self, server: str) -> int:
        """How often the server was started."""
        return len(self.fakes[server].events("start"))

    def stop(self) -> None:
        """Ends the processes."""
        self.stack.stop()
        self.fakes["web"].stop_http()


_SETTINGS: dict[str, dict[str, Any]] = {"modern": {"revision": "modern"}, "silent": {"no_list": True}}


def gone(pids: set[int], timeout: float) -> None:
    """Waits until none of the processes runs any more."""
    wait_until(lambda: not any(_runs(pid) for pid in pids), timeout, f"processes {pids} to end")


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True)
    return directory
