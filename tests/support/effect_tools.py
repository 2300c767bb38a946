"""A plugin with native tools whose effects can be counted; loaded by workers and front doors under test.

Every effect is one line of JSON in the file named by EFFECTS_FILE, written and fsynced before the tool answers:
`{"op", "id", "mutation_id", "attempt", "pid"}`.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

MUTATIONS = ("pay", "pay_slowly", "break_off")


def _effect(op: str, arguments: dict[str, Any], context: Any) -> None:
    call = context.call
    line = {
        "op": op,
        "id": arguments["id"],
        "mutation_id": call.mutation_id,
        "attempt": call.attempt,
        "pid": os.getpid(),
    }
    log = os.open(os.environ["EFFECTS_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(log, json.dumps(line).encode() + b"\n")
        os.fsync(log)
    finally:
        os.close(log)


async def pay(arguments: dict[str, Any], context: Any) -> dict[str, Any]:
    """The effect at once."""
    _effect("pay", arguments, context)
    return {"paid": True}


async def pay_slowly(arguments: dict[str, Any], context: Any) -> dict[str, Any]:
    """The effect after `before` seconds, the answer `after` seconds later."""
    await asyncio.sleep(arguments.get("before", 0.0))
    _effect("pay_slowly", arguments, context)
    await asyncio.sleep(arguments.get("after", 0.0))
    return {"paid": True}


async def break_off(arguments: dict[str, Any], context: Any) -> None:
    """The effect, and then no answer that anybody can read."""
    _effect("break_off", arguments, context)
    raise ConnectionResetError


async def look(arguments: dict[str, Any], context: Any) -> dict[str, Any]:
    """No effect, not protected."""
    return {"seen": True}


def bind(engine: Any) -> None:
    """Registers the tools: declared mutations, `approved_pay`, which a person must approve, and `look`."""
    for handler in (pay, pay_slowly, break_off, look):
        engine.register_native_tool(handler.__name__, handler)
    engine.register_mutation_tools(MUTATIONS)
    engine.register_native_tool("approved_pay", pay_slowly, human="approve")
