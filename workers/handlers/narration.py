"""A handler's return value as the narration that is stored with its run; judges, never raises."""

from __future__ import annotations

import json
from typing import Any

import orjson

from ledger.handlers import NARRATION_BYTES
from workers.tools.content import bounded

WITHHELD = {"withheld": "too large, or not JSON"}


def narration_json(value: Any) -> str:
    """`value` as JSON text; what takes over `NARRATION_BYTES` of UTF-8 is cut, if a text, or else withheld."""
    content, withheld = bounded(value, NARRATION_BYTES)
    if withheld:
        content = _cut(value) if type(value) is str else WITHHELD
    return json.dumps(content, separators=(",", ":"))


def _cut(text: str) -> object:
    """The longest beginning that fits; between two characters, never inside one."""
    low, high = 0, min(len(text), NARRATION_BYTES)
    try:
        while low < high:
            middle = (low + high + 1) // 2
            if len(orjson.dumps(text[:middle])) <= NARRATION_BYTES:
                low = middle
            else:
                high = middle - 1
    except (TypeError, ValueError):  # an unpaired surrogate
        return WITHHELD
    return text[:low]
