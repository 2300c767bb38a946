"""A plugin for the soak: a look from inside the worker, in its own loop."""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections import Counter
from typing import Any

from workers.tools.server import McpServer

PROBE = "soak_probe"


async def soak_probe(arguments: dict[str, Any], context: Any) -> dict[str, Any]:
    """Asyncio tasks alive now, by what they run. Memory that is free goes back to the system first."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    names = Counter(getattr(task.get_coro(), "__qualname__", "?") for task in asyncio.all_tasks())
    servers = [found for found in gc.get_objects() if isinstance(found, McpServer)]
    return {"tasks": sum(names.values()), "by_name": dict(names), "connections": dict(map(_connections, servers))}


def _connections(server: McpServer) -> tuple[str, list[str]]:
    """The connections of a server that have not ended, each in a few words."""
    told = []
    for one in server._connections:
        words = ["current" if one is server._connection else "other", "usable" if one.usable else "unusable"]
        words += ["retired"] * one.retired + ["closing"] * one._closing.is_set() + [f"{one.in_flight} in flight"]
        told.append(" ".join(words))
    return server.name, told


def bind(engine: Any) -> None:
    """Registers it; it is not protected."""
    engine.register_native_tool(PROBE, soak_probe)
