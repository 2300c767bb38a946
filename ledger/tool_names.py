"""Canonical names of tools: `mcp__<server>__<tool>` for what an MCP server has (C-03)."""

from __future__ import annotations

from collections.abc import Mapping

MCP_PREFIX = "mcp__"


def split_tool(tool: str, servers: Mapping[str, object]) -> tuple[str, str] | None:
    """`(server, tool)` of `mcp__<server>__<tool>`, or None; the longest configured name wins (C-03)."""
    if not tool.startswith(MCP_PREFIX):
        return None
    rest = tool.removeprefix(MCP_PREFIX)
    fitting = [name for name in servers if rest.startswith(f"{name}__")]
    if not fitting:
        return None
    server = max(fitting, key=len)
    name = rest.removeprefix(f"{server}__")
    return (server, name) if name else None
