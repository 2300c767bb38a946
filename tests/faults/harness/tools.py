"""A plugin whose tools keep a log of their own: a line for each call, on disk before the tool answers.

A line is `{"id", "mutation_id", "attempt", "session", "tool", "pid", "how", "entered"}`; `entered` is on the machine's
monotonic clock, which all processes share. It is the truth that the ledger is held against.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any

from workers.handlers import CallRefused
from workers.tools.native import ToolExecutionResult

PROTECTED = ("act",)


def note(tool: str, arguments: dict[str, Any], context: Any, entered: float) -> None:
    """Writes the line of one call and fsyncs it."""
    call = context.call
    line = {
        "id": arguments["id"],
        "mutation_id": call.mutation_id,
        "attempt": call.attempt,
        "session": call.session_id,
        "tool": tool,
        "pid": os.getpid(),
        "how": arguments.get("how", "ok"),
        "entered": entered,
    }
    log = os.open(os.environ["EFFECTS_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(log, json.dumps(line).encode() + b"\n")
        os.fsync(log)
    finally:
        os.close(log)


async def act(arguments: dict[str, Any], context: Any) -> Any:
    """The effect, `before` seconds after being entered, and `after` seconds later the answer named by `how`."""
    return await _act("act", arguments, context)


async def ask_act(arguments: dict[str, Any], context: Any) -> Any:
    """The same, for which a person must say yes."""
    return await _act("ask_act", arguments, context)


async def _act(tool: str, arguments: dict[str, Any], context: Any) -> Any:
    entered = time.monotonic()
    await asyncio.sleep(arguments.get("before", 0.0))
    note(tool, arguments, context, entered)
    await asyncio.sleep(arguments.get("after", 0.0))
    match arguments.get("how", "ok"):
        case "fails":
            return ToolExecutionResult(False, failure_confirmed=True)
        case "breaks":
            raise ConnectionResetError
        case _:
            return {"done": True}


async def story(context: Any) -> list[str]:
    """A turn handler: asks for each call in its input, whatever became of the one before."""
    told: list[str] = []
    for tool, arguments in context.input:
        try:
            told.append((await context.executor.call(tool, arguments)).status.value)
        except CallRefused as refused:
            told.append(refused.code)
    return told


def bind(engine: Any) -> None:
    """Registers the tools and the handler."""
    engine.register_native_tool("act", act)
    engine.register_native_tool("ask_act", ask_act, human="approve")
    engine.register_mutation_tools(PROTECTED)
    engine.register_turn_handler("story", story)
