"""Public MCP servers, as they are published: a protected call waits for its approval, runs once, and a kill -9 of the
worker in the middle never makes it happen twice. Run by `make public-mcp`, which installs the servers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.stack import Api, Stack
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

TEE = Path(__file__).parent.parent / "support" / "tee_mcp.py"
SERVERS = Path(os.environ.get("PUBLIC_MCP", ".public-mcp")).absolute()
HOLD_SECONDS = 3.0

pytestmark = [pytest.mark.npm, pytest.mark.acceptance, pytest.mark.timeout(180)]


def _git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), "-c", "user.name=Dana", "-c", "user.email=dana@example.test", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _config(directory: Path, repository: Path) -> str:
    tee = [sys.executable, str(TEE), str(directory / "calls.jsonl"), str(HOLD_SECONDS)]
    files = [*tee, str(SERVERS / "node_modules/.bin/mcp-server-filesystem"), str(directory / "files")]
    git = [*tee, str(SERVERS / "venv/bin/mcp-server-git"), "--repository", str(repository)]
    return f"""
[timing]
lease_seconds = 3
[mcp.servers.files]
command = {json.dumps(files)}
[mcp.servers.files.tools.write_file]
human = "approve"
[mcp.servers.git]
command = {json.dumps(git)}
[mcp.servers.git.tools.git_commit]
human = "approve"
[mcp.servers.git.tools.git_add]
human = "approve"
"""


class Scene:
    """A stack with both servers and the places they write to."""

    def __init__(self, directory: Path, stack: Stack, api: Api) -> None:
        self.directory, self.stack, self.api = directory, stack, api
        self.repository = directory / "repository"

    def calls(self, mutation_id: str) -> int:
        """How often the server was asked for this mutation."""
        log = self.directory / "calls.jsonl"
        if not log.exists():
            return 0
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        return sum(line["mutation_id"] == mutation_id for line in lines)

    def deliver(self, delivery: str, calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
        """Hands a delivery in and approves what is asked."""
        run: dict[str, Any] = self.api.trigger("s1", delivery, calls).body
        for call in run["calls"]:
            if call["approval_id"]:
                assert self.api.approve(call["approval_id"]).status == 200
        return run

    def ended(self, run_id: str, timeout: float = 30) -> dict[str, Any]:
        """The run once it has ended."""

        def look() -> dict[str, Any] | None:
            run: dict[str, Any] = self.api.get(f"/api/runs/{run_id}").body
            return run if run["status"] in ("completed", "failed", "cancelled") else None

        return wait_until(look, timeout, f"run {run_id} to end") or {}


@pytest.fixture
def scene(tmp_path: Path, valkey: ValkeyProcess) -> Iterator[Scene]:
    repository = tmp_path / "repository"
    (tmp_path / "files").mkdir()
    repository.mkdir()
    _git(repository, "init", "-q", "-b", "main")
    _git(repository, "config", "user.name", "Dana")
    _git(repository, "config", "user.email", "dana@example.test")
    _git(repository, "commit", "-q", "--allow-empty", "-m", "start")
    with Stack(tmp_path / "stack", valkey.url, _config(tmp_path, repository)) as stack:
        api = stack.add_front_door()
        stack.add_worker()
        yield Scene(tmp_path, stack, api)


@pytest.mark.proves("C-13", "C-56")
def test_write_file_runs_once_after_approval(scene: Scene) -> None:
    path = scene.directory / "files" / "note.txt"
    run = scene.deliver("d1", [("mcp__files__write_file", {"path": str(path), "content": "hello"})])

    ended = scene.ended(run["run_id"])

    assert ended["calls"][0]["outcome"]["status"] == "completed", ended
    assert path.read_text() == "hello"
    assert scene.calls(run["calls"][0]["mutation_id"]) == 1


@pytest.mark.proves("C-13", "C-56")
def test_git_commit_runs_once_after_approval(scene: Scene) -> None:
    (scene.repository / "a.txt").write_text("a")
    repository = str(scene.repository)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("mcp__git__git_add", {"repo_path": repository, "files": ["a.txt"]}),
        ("mcp__git__git_commit", {"repo_path": repository, "message": "add a"}),
    ]
    run = scene.deliver("d1", calls)

    ended = scene.ended(run["run_id"])

    assert [call["outcome"]["status"] for call in ended["calls"]] == ["completed", "completed"], ended
    assert _git(scene.repository, "log", "--format=%s").splitlines() == ["add a", "start"]


@pytest.mark.proves("C-33", "C-56")
@pytest.mark.parametrize("server", ["files", "git"])
def test_kill_in_the_middle_never_writes_twice(scene: Scene, server: str) -> None:
    path = scene.directory / "files" / "HOLD.txt"
    call: tuple[str, dict[str, Any]]
    if server == "files":
        call = ("mcp__files__write_file", {"path": str(path), "content": "once"})
    else:
        (scene.repository / "b.txt").write_text("b")
        _git(scene.repository, "add", "b.txt")
        call = ("mcp__git__git_commit", {"repo_path": str(scene.repository), "message": "HOLD b"})
    run = scene.deliver("d1", [call])
    mutation_id = run["calls"][0]["mutation_id"]
    wait_until(lambda: scene.calls(mutation_id) == 1, 20, "the call to reach the server")

    scene.stack.kill(scene.stack.workers[0])
    scene.stack.add_worker()

    ended = scene.ended(run["run_id"])
    assert ended["calls"][0]["outcome"]["status"] == "outcome_unknown"
    again = scene.deliver("d1", [call])
    refused = scene.ended(again["run_id"])["calls"][0]
    assert refused["refusal"]["code"] == "mutation_outcome_unknown"
    assert scene.calls(mutation_id) == 1
    assert _git(scene.repository, "log", "--format=%s").splitlines().count("HOLD b") <= 1
