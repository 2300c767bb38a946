"""A plugin for the case tests: native tools whose effects are counted, which wait at a gate, or answer oddly.

Every effect is one line of JSON in the file named by EFFECTS_FILE, fsynced before the tool goes on:
`{"op", "arguments", "mutation_id", "attempt"}`; integers keep every digit.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ledger.errors import InvalidRequest
from ledger.long_integers import write_json

PAY, ASK, HELD, ODD, LOOK = "case_pay", "case_ask", "case_held", "case_odd", "case_look"
BY_AMOUNT = "case_by_amount"
_STEP_SECONDS = 0.005


def _nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": value}
    return value


ODD_ANSWERS: dict[str, Any] = {
    "nan": {"amount": float("nan")},
    "infinity": {"amount": float("inf")},
    "deep": _nested(2000),
    "surrogate": {"text": "\ud800"},
    "bytes": {"data": b"\xff"},
    "huge": {"text": "x" * 3_000_000},
}


def _effect(op: str, arguments: dict[str, Any], context: Any) -> None:
    call = context.call
    line = {"op": op, "arguments": arguments, "mutation_id": call.mutation_id, "attempt": call.attempt}
    log = os.open(os.environ["EFFECTS_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(log, write_json(line, json.JSONEncoder()).encode() + b"\n")
        os.fsync(log)
    finally:
        os.close(log)


async def case_pay(arguments: dict[str, Any], context: Any) -> dict[str, Any]:
    """The effect at once."""
    _effect(PAY, arguments, context)
    return {"paid": True}


async def case_ask(arguments: dict[str, Any], context: Any) -> dict[str, Any]:
    """The same, but a person is asked before."""
    _effect(ASK, arguments, context)
    return {"paid": True}


async def case_held(arguments: dict[str, Any], context: Any) -> dict[str, Any]:
    """The effect at once, the answer when the file `gate-<arguments["gate"]>` is there."""
    _effect(HELD, arguments, context)
    gate = Path(os.environ["EFFECTS_FILE"]).with_name(f"gate-{arguments['gate']}")
    while not gate.exists():
        await asyncio.sleep(_STEP_SECONDS)
    return {"echo": arguments}


async def case_deaf(arguments: dict[str, Any], context: Any) -> dict[str, Any]:
    """The effect at once; goes on to a success at its gate, whatever is thrown at it."""
    _effect("case_deaf", arguments, context)
    gate = Path(os.environ["EFFECTS_FILE"]).with_name(f"gate-{arguments['gate']}")
    while not gate.exists():
        with contextlib.suppress(BaseException):
            await asyncio.sleep(_STEP_SECONDS)
    _effect("case_deaf", {"word": "late success"}, context)
    return {"paid": True}


async def case_busy(arguments: dict[str, Any], context: Any) -> dict[str, Any]:
    """Holds the loop in slices of 200 ms, as bad host code does, until its gate is there."""
    gate = Path(os.environ["EFFECTS_FILE"]).with_name(f"gate-{arguments['gate']}")
    while not gate.exists():
        time.sleep(0.2)  # that it blocks is the case
        await asyncio.sleep(0)
    return {"busy": arguments["gate"]}


async def case_odd(arguments: dict[str, Any], context: Any) -> Any:
    """The effect, and an answer that JSON cannot hold or nobody should keep."""
    _effect(ODD, arguments, context)
    return ODD_ANSWERS[arguments["answer"]]


async def case_look(arguments: dict[str, Any], context: Any) -> dict[str, Any]:
    """No effect, not protected."""
    return {"seen": True}


async def case_by_amount(arguments: dict[str, Any], context: Any) -> dict[str, Any]:
    """The effect at once; whether a person is asked, and how, depends on the amount."""
    _effect(BY_AMOUNT, arguments, context)
    return {"paid": True}


async def case_model(context: Any) -> list[str]:
    """A model's turn: it asks for calls whose numbers are none, and is told what came of each."""
    answers = []
    for arguments in ({"amount": math.nan}, {"amount": math.inf}, {"a": [{"b": -math.inf}]}):
        try:
            answers.append((await context.executor.call(ASK, arguments)).status)
        except InvalidRequest as error:
            answers.append(error.code)
    return answers


def level_by_amount(tool: str, arguments: Mapping[str, Any]) -> str | None:
    """Nobody up to 10, a yes up to 100, the tool's name typed above; no amount is an error of the caller's."""
    amount = arguments["amount"]
    if amount <= 10:
        return None
    return "approve" if amount <= 100 else "confirm"


def bind(engine: Any) -> None:
    """Registers the tools: three declared as mutations, one that asks a person, one that may, one unprotected."""
    for handler in (case_pay, case_held, case_deaf, case_odd, case_busy, case_look):
        engine.register_native_tool(handler.__name__, handler)
    engine.register_native_tool(ASK, case_ask, human="approve")
    engine.register_native_tool(BY_AMOUNT, case_by_amount, human="dynamic")
    engine.resolve_human(level_by_amount)
    engine.register_turn_handler(case_model.__name__, case_model)
    engine.register_mutation_tools((PAY, HELD, ODD, "case_deaf"))
