"""Bounding what a tool returned, so that it can be journalled; judges, never raises."""

from __future__ import annotations

import math
from collections.abc import Iterable

import orjson

MAX_DEPTH = 64


def bounded(value: object, limit: int) -> tuple[object | None, bool]:
    """`(value, False)` if orjson writes it in at most `limit` bytes without loss, else `(None, True)`.

    Withheld are NaN and infinities, integers beyond 64 bits, unpaired surrogates, keys that are not strings,
    types orjson does not know, and more than 64 levels. The value returned is a copy of its own.
    """
    if value is None or isinstance(value, bool):
        return value, False
    try:
        text = orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS)
    except (TypeError, ValueError, RecursionError):
        return None, True
    if len(text) > limit or _loses(value, text):
        return None, True
    return orjson.loads(text), False


def _loses(value: object, text: bytes) -> bool:
    """Whether `text` may differ from `value`: orjson writes NaN as null, and reads any depth it can write."""
    if b"null" in text and not _finite(value):
        return True
    return text.count(b"[") + text.count(b"{") > MAX_DEPTH and _deeper(value, MAX_DEPTH)


def _finite(value: object) -> bool:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, float) and not math.isfinite(item):
            return False
        waiting.extend(_inner(item))
    return True


def _deeper(value: object, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [inner for item in level for inner in _inner(item)]
    return any(isinstance(item, dict | list | tuple) for item in level)


def _inner(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()
