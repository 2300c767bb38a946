"""Turn handlers that follow the steps in their delivery's `input`, so that each test can tell its own story.

A step is one of
    {"call": tool, "arguments": {...}}   asks for a call; its status or refusal goes into the narration
    {"file": path}                       waits until that file exists
    {"vary": tool}                       asks for a call whose arguments are others each time the handler is started
    {"change": tool, "arguments": {...}} asks for a call and changes its arguments while it waits
    {"give_up": tool, "arguments", "seconds"}  asks for a call and waits only so long (async only)
    {"clocks": true}                     notes the deadlines
    {"raise": text}                      fails

What happens to a handler is noted in the file named by TURNS_FILE, one line each: `{"run": text of the delivery, "pid",
"word"}`; words are `start`, `stopped <exception>` and `end`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workers.handlers import CallRefused, CallResult, HandlerContext, HandlerStopped


def note(context: HandlerContext, word: str) -> int:
    """Notes a word about this delivery; how many lines with that word and delivery there are now."""
    path = Path(os.environ["TURNS_FILE"])
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(log, json.dumps({"run": context.text, "pid": os.getpid(), "word": word}).encode() + b"\n")
    finally:
        os.close(log)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return sum(line["run"] == context.text and line["word"] == word for line in lines)


def _told(result: CallResult) -> dict[str, Any]:
    return {
        "status": result.status.value,
        "recorded": result.outcome and result.outcome["status"],
        "result": result.result,
        "refusal": result.refusal,
        "reason": result.reason,
    }


def _clocks(context: HandlerContext, began: float) -> dict[str, float]:
    return {
        "live": context.executor.deadline_monotonic - began,
        "snapshot": context.deadline_monotonic - began,
        "ceiling": context.request_deadline_monotonic - began,
        "now": time.monotonic() - began,
    }


def _arguments(step: dict[str, Any], starts: int) -> tuple[str, dict[str, Any]]:
    if "vary" in step:
        return step["vary"], {"id": f"start-{starts}"}
    tool: str = step.get("call") or step.get("change") or step["give_up"]
    return tool, dict(step["arguments"])


def _steps(context: HandlerContext) -> Iterator[dict[str, Any]]:
    yield from context.input


async def follow(context: HandlerContext) -> list[Any]:
    """Follows the steps in the worker's loop."""
    starts, began, told = note(context, "start"), time.monotonic(), list[Any]()
    try:
        for step in _steps(context):
            told.append(await _take(context, step, starts, began))
    except HandlerStopped as stopped:
        note(context, f"stopped {type(stopped).__name__}")
        raise
    note(context, "end")
    return told


async def _take(context: HandlerContext, step: dict[str, Any], starts: int, began: float) -> Any:
    if "file" in step:
        while not Path(step["file"]).exists():
            await asyncio.sleep(0.01)
        return "went on"
    if "clocks" in step:
        return _clocks(context, began)
    if "raise" in step:
        raise ValueError(step["raise"])
    tool, arguments = _arguments(step, starts)
    executor: Any = context.executor
    try:
        if "give_up" in step:
            return _told(await asyncio.wait_for(executor.call(tool, arguments), step["seconds"]))
        if "change" in step:
            asyncio.get_running_loop().call_later(0.1, arguments.update, {"id": "changed"})
        return _told(await executor.call(tool, arguments))
    except CallRefused as refused:
        return {"refused": refused.code, "recorded": refused.call.outcome and refused.call.outcome["status"]}
    except TimeoutError:
        return "gave up"


def follow_blocking(context: HandlerContext) -> list[Any]:
    """Follows the steps in a thread."""
    starts, began, told = note(context, "start"), time.monotonic(), list[Any]()
    try:
        for step in _steps(context):
            told.append(_take_blocking(context, step, starts, began))
    except HandlerStopped as stopped:
        note(context, f"stopped {type(stopped).__name__}")
        raise
    note(context, "end")
    return told


def _take_blocking(context: HandlerContext, step: dict[str, Any], starts: int, began: float) -> Any:
    if "file" in step:
        while not Path(step["file"]).exists() and not context.cancelled:
            time.sleep(0.01)
        return "cancelled" if context.cancelled else "went on"
    if "clocks" in step:
        return _clocks(context, began)
    if "raise" in step:
        raise ValueError(step["raise"])
    tool, arguments = _arguments(step, starts)
    executor: Any = context.executor
    try:
        return _told(executor.call(tool, arguments))
    except CallRefused as refused:
        return {"refused": refused.code, "recorded": refused.call.outcome and refused.call.outcome["status"]}


def pay_blocking(arguments: dict[str, Any], context: Any) -> dict[str, Any]:
    """A native tool that holds a thread for `seconds`; no effect outside."""
    threading.Event().wait(arguments.get("seconds", 0.0))
    return {"paid": arguments["id"]}


def die(arguments: dict[str, Any], context: Any) -> None:
    """An unprotected native tool that takes its worker down."""
    os.kill(os.getpid(), signal.SIGKILL)


def bind(engine: Any) -> None:
    """Registers the handlers, `die`, and `pay_blocking`, a declared mutation."""
    engine.register_turn_handler("follow", follow)
    engine.register_turn_handler("follow_again", follow, replayable=True)
    engine.register_turn_handler("follow_blocking", follow_blocking)
    engine.register_native_tool("die", die)
    engine.register_native_tool("pay_blocking", pay_blocking)
    engine.register_mutation_tools(("pay_blocking",))
