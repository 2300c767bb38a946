"""The blocks of docs/engine.md and docs/execution.md, run as a host's program beside a real worker."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.stack import Stack
from tests.support.valkey import ValkeyProcess

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Contract, section 16.
NAMES = (
    *("register_mutation_tools", "register_approved_mutation_budget", "handle_with_results", "resume_logical_turn"),
    *("mutation_state", "attach_mutation_metadata", "reconcile_mutation", "SessionManager", "mutation_outcomes"),
    *("on_mutation_outcome", "mutation_revision", "HumanRequest", "remaining_timeout", "deadline_monotonic"),
    *("logical_turn_id", "context.executor.deadline_monotonic", "context.request_deadline_monotonic"),
    *("context.deadline_monotonic", "engine.handle(", "MCPExecutionTimeout"),
)


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", ["engine.md", "execution.md"])
def test_the_page_s_program_runs(page: str, tmp_path: Path, valkey: ValkeyProcess) -> None:
    (config,) = blocks(page, "toml")
    python = blocks(page, "python")
    plugins = [block for block in python if block.startswith("# page_tools.py")]
    program = "\n".join(block for block in python if block not in plugins)
    config = config.replace('["python", ', f'["{sys.executable}", ')
    with Stack(tmp_path, valkey.url, config, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"}) as stack:
        (tmp_path / "page_tools.py").write_text("\n".join(plugins), encoding="utf-8")
        (tmp_path / "page.py").write_text(program, encoding="utf-8")
        stack.add_worker()
        env = {**stack.env, "MUTATION_LEDGER__REDIS__URL": valkey.url}
        done = subprocess.run(
            [sys.executable, "page.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=90, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_engine_s_page_shows_every_name() -> None:
    text = (DOCS / "engine.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if name not in text] == []


def test_readme_leads_to_both_pages() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page for page in ("docs/engine.md", "docs/execution.md") if page not in text] == []
