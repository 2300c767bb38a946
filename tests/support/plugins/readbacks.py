"""A plugin whose tool breaks off after its effect, and whose readback does what the call's arguments tell it to.

Arguments are `{"id", "readback"}`; each question is noted in the file named by READBACKS_FILE, one line of JSON each:
`{"id", "word", "attempt", "try", "pid", "at"}`, words `asked` and `answered`.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from ledger.readbacks import ReadbackAnswer, ReadbackRequest
from tests.support.effect_tools import break_off

TOOL, UNASKED, ASYNC, HOSTED = "break_off_asked", "break_off_unasked", "break_off_async", "break_off_hosted"


def _note(request: ReadbackRequest, word: str) -> int:
    arguments = request.arguments or {}
    line = {
        "id": arguments["id"],
        "word": word,
        "attempt": request.attempt,
        "try": request.attempt_number,
        "pid": os.getpid(),
        "at": time.time(),
    }
    log = os.open(os.environ["READBACKS_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(log, json.dumps(line).encode() + b"\n")
    finally:
        os.close(log)
    return request.attempt_number


def _effects(arguments: dict[str, Any]) -> int:
    lines = Path(os.environ["EFFECTS_FILE"]).read_text(encoding="utf-8").splitlines()
    return sum(json.loads(line)["id"] == arguments["id"] for line in lines)


def look_up(request: ReadbackRequest) -> Any:
    """Says what the effects file says, unless the arguments tell otherwise."""
    tried = _note(request, "asked")
    arguments = request.arguments or {}
    match arguments["readback"]:
        case "raise":
            raise LookupError(arguments["secret"])
        case "nonsense":
            return True
        case "bad_metadata":
            return ReadbackAnswer.completed(metadata={"secret": "x"})
        case "unknown":
            return ReadbackAnswer.unknown(note="the books are closed")
        case "hang" if tried == 1:
            time.sleep(30)
        case "kill" if tried == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        case "slow":
            time.sleep(0.6)
        case "nothing":
            return ReadbackAnswer.not_executed(note="no such booking")
        case _:
            pass
    _note(request, "answered")
    found = f"{_effects(arguments)} in the books\nwith\x1b[31m colour"
    return ReadbackAnswer.completed(metadata={"id": f"B-{arguments['id']}", "title": "Booking"}, note=found)


async def look_up_async(request: ReadbackRequest) -> ReadbackAnswer:
    """The same without a thread."""
    _note(request, "asked")
    return ReadbackAnswer.completed()


def bind(engine: Any) -> None:
    """Registers the tools; two of them have no readback here."""
    for name in (TOOL, UNASKED, ASYNC, HOSTED):
        engine.register_native_tool(name, break_off)
    engine.register_mutation_tools((TOOL, UNASKED, ASYNC, HOSTED))
    engine.readback(TOOL, look_up)
    engine.readback(ASYNC, look_up_async)
