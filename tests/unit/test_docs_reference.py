"""The reference pages list what the code has: config keys with their defaults, commands, routes, problems, metrics."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from ledger import config
from ledger.cli.group import cli
from ledger.config.sections import ReadbacksConfig
from ledger.counts import Standing
from service.metrics import Metrics
from service.problems import PROBLEMS
from service.standing import _families
from tests.unit.test_service_openapi import CONTRACT

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SECTIONS: dict[str, type[BaseModel]] = {
    "[redis]": config.RedisConfig,
    "[service]": config.ServiceConfig,
    "[workers]": config.WorkersConfig,
    "[[tokens]]": config.TokenConfig,
    "[mcp.servers.NAME]": config.McpServerConfig,
    "[mcp]": config.McpConfig,
    "[policy]": config.PolicyConfig,
    "[budget]": config.BudgetConfig,
    "[timing]": config.TimingConfig,
    "[retention]": config.RetentionConfig,
    "[readbacks]": ReadbacksConfig,
    "[plugins]": config.PluginsConfig,
}
# Sections of their own inside these.
BESIDE: dict[str, tuple[set[str], type[BaseModel] | None]] = {
    "[mcp.servers.NAME]": ({"tools"}, config.ToolPolicy),
    "[policy]": ({"auto_approve"}, config.AutoApproveRule),
    "[mcp]": ({"servers"}, None),
}


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def documented(section: str) -> dict[str, str]:
    """Key and default as the page has them."""
    (text,) = re.findall(
        rf"^## `{re.escape(section)}`\n(.*?)(?=^## |\Z)", page("configuration.md"), re.MULTILINE | re.DOTALL
    )
    return dict(re.findall(r"^\| `(\w+)` \| (`[^|]+`|absent|required) \|", text, re.MULTILINE))


def default(model: type[BaseModel], key: str) -> str:
    value: Any = model.model_fields[key].get_default(call_default_factory=True)
    return "required" if value is PydanticUndefined else "absent" if value is None else "given"


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_stands_with_its_default(section: str) -> None:
    model, found = SECTIONS[section], documented(section)
    own, inner = BESIDE.get(section, (set(), None))
    fields = {key: model for key in model.model_fields if key not in own}
    fields |= dict.fromkeys(inner.model_fields, inner) if inner is not None else {}
    assert found.keys() == fields.keys()
    for key, owner in fields.items():
        kind = default(owner, key)
        if kind != "given":
            assert found[key] == kind, key
            continue
        value = tomllib.loads(f"value = {found[key].strip('`')}")["value"]
        assert value == owner.model_fields[key].get_default(call_default_factory=True), key


def test_no_section_is_missing() -> None:
    named = {section.strip("[]").split(".")[0] for section in SECTIONS}
    assert named == set(config.Config.model_fields)
    assert set(re.findall(r"^\| `(\w+)` \| [a-z]", page("configuration.md"), re.MULTILINE)) >= set(config.Role)


def test_every_command_has_an_example() -> None:
    text = page("commands.md")
    context = click.Context(cli)
    names = []
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        if isinstance(command, click.Group):
            names += [f"{name} {inner}" for inner in command.commands]
        else:
            names.append(name)
    assert [name for name in names if not re.search(rf"^(\w+=\S+ )?mutation-ledger {name}\b", text, re.MULTILINE)] == []


def test_examples_use_options_that_exist() -> None:
    context = click.Context(cli)
    for line in re.findall(r"^(?:\w+=\S+ )?mutation-ledger (.+)$", page("commands.md"), re.MULTILINE):
        first, *rest = line.split()
        command = cli.get_command(context, first)
        if isinstance(command, click.Group):
            command = command.commands[rest[0]]
        assert command is not None, line
        if first != "bench":
            known = {option for parameter in command.params for option in parameter.opts}
            assert [word for word in rest if word.startswith("--") and word not in known] == [], line


def test_every_route_stands_with_its_role() -> None:
    rows = re.findall(r"^\| `([A-Z]+) (/\S+)` \| (\w*) ?\|", page("http.md"), re.MULTILINE)
    assert {(method, path): role or None for method, path, role in rows} == CONTRACT


def test_every_problem_stands_with_its_status() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| ([^|]+) \| (?:(\d+) )?\|$", page("http.md"), re.MULTILINE)
    found = {code: (int(status), title, int(wait) if wait else None) for code, status, title, wait in rows}
    assert found == {code: (kind.status, kind.title, kind.retry_after) for code, kind in PROBLEMS.items()}


def test_every_metric_stands_there() -> None:
    families = [*text_string_to_metric_families(Metrics().text().decode()), *_families(Standing())]
    names = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in families
        if not family.name.endswith("_created")
    }
    assert set(re.findall(r"^\| `(mutation_ledger_\w+)`", page("http.md"), re.MULTILINE)) == names | {
        "mutation_ledger_store_up"
    }


def test_readme_leads_to_the_pages() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in ("configuration.md", "commands.md", "http.md") if f"(docs/{name})" not in text] == []


@pytest.mark.parametrize("path", [*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "deploy" / "README.md"], ids=str)
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", text) if "://" not in target]
    assert [target for target in targets if target and not (path.parent / target).exists()] == []
