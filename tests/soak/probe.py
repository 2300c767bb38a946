"""A plugin for the soak: a look from inside the worker, in its own loop."""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections import Counter
from typing import Any

PROBE = "soak_probe"


async def soak_probe(arguments: dict[str, Any], context: Any) -> dict[str, Any]:
    """Asyncio tasks alive now, by what they run. Memory that is free goes back to the system first."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    names = Counter(getattr(task.get_coro(), "__qualname__", "?") for task in asyncio.all_tasks())
    return {"tasks": sum(names.values()), "by_name": dict(names)}


def bind(engine: Any) -> None:
    """Registers it; it is not protected."""
    engine.register_native_tool(PROBE, soak_probe)
