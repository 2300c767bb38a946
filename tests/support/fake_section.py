"""The misbehaving MCP server as a section of a configuration file, for real workers."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.support.tool_calls import COMMAND, FakeServer


def fake_section(
    fake: FakeServer, levels: Mapping[str, str] | None = None, *, name: str = "fake", **more: object
) -> str:
    """`[mcp.servers.<name>]` that starts `fake` over stdio, or reaches it by its port; `levels` of its tools."""
    if fake.port:
        lines = [f"url = {json.dumps(f'http://127.0.0.1:{fake.port}/mcp')}"]
    else:
        lines = [f"command = {json.dumps(COMMAND)}", f"env = {{ FAKE_MCP = {json.dumps(json.dumps(fake.settings))} }}"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in more.items()]
    text = f"[mcp.servers.{name}]\n" + "\n".join(lines) + "\n"
    for tool, level in (levels or {}).items():
        text += f'[mcp.servers.{name}.tools.{tool}]\nhuman = "{level}"\n'
    return text
