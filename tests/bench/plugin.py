"""The tool that is measured: a native function that does nothing, protected, answered by an auto-approval rule."""

from __future__ import annotations

from typing import Any

from ledger.plugins import PluginRegistry

TOOL = "noop"
ASKED = "asked"


async def noop(arguments: dict[str, Any], ctx: object) -> dict[str, Any]:
    """Does nothing; the arguments come back."""
    return {"n": arguments.get("n")}


def bind(engine: PluginRegistry) -> None:
    """Registers the tool, which a rule of the configuration approves, and one that waits for a person."""
    engine.register_native_tool(TOOL, noop, human="approve")
    engine.register_native_tool(ASKED, noop, human="approve")
