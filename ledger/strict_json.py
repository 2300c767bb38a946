"""JSON read and written without loss: how arguments enter the ledger, and the one form that is hashed.

How nesting is counted: every object and array is one level, scalars are none, so `{}` has one level.
Arguments may hold `MAX_DEPTH` levels, their own object included. A request body wraps them in `{"calls":
[{"arguments": ...}]}`, three levels more; so a body is read with `max_depth=BODY_DEPTH` and each call's
arguments are then counted by themselves in `check_arguments`.

Integers of any size stay exact; one that alone would be larger than a call's arguments may be is refused.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from ledger.errors import InvalidRequest
from ledger.long_integers import MAX_INTEGER_DIGITS, LongInteger, integer, write_json

MAX_DEPTH = 64
ENVELOPE_DEPTH = 3
BODY_DEPTH = MAX_DEPTH + ENVELOPE_DEPTH
MAX_ARGUMENT_BYTES = 262_144

_SMALL_INTEGER = 10**18
# The closing quote is optional so that every start matches: an unterminated string stays linear.
_NOT_A_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[^\[\]{}"]++', re.DOTALL)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def loads(data: bytes, *, max_depth: int = MAX_DEPTH) -> Any:
    """Parse one JSON document from UTF-8 `data`, refusing everything two readers could read differently.

    Raises InvalidRequest, naming the fault but never quoting content: invalid UTF-8, BOM, UTF-16 or UTF-32,
    NaN and infinities (also by overflow), duplicate keys at any depth, unpaired surrogates, more than
    `max_depth` levels, integers over `MAX_INTEGER_DIGITS` digits, trailing data, nothing at all (C-02).
    """
    text = _decode(data)
    _check_depth(text, max_depth)
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        fault = "data after its end" if error.msg == "Extra data" else "a syntax error"
        place = f"line {error.lineno} column {error.colno}"
        raise InvalidRequest(f"the JSON document has {fault} at {place}") from None
    except RecursionError:
        raise InvalidRequest(_too_deep(max_depth)) from None
    if _SURROGATE_ESCAPE.search(text):
        _check_surrogates(write_json(value, _UNESCAPED))
    return value


def canonical(value: Any) -> str:
    """The one form that is hashed and stored: `json.dumps` with sorted keys, compact, ASCII, no NaN (C-01).

    Raises what `json.dumps` raises; values from outside go through `loads` or `check_arguments` first.
    """
    return write_json(value, _ENCODER)


def canonical_bytes(value: Any) -> bytes:
    """`canonical` as bytes (ASCII)."""
    return canonical(value).encode("ascii")


def check_arguments(value: object, *, max_bytes: int = MAX_ARGUMENT_BYTES) -> str:
    """Check the arguments of one call and return their canonical text (C-02).

    `value` may come from `loads` or be built in Python by a turn handler or a model client, so nothing is
    taken for granted: only dict, list, str, int, float, bool and None themselves (no subclasses, no tuples:
    they would be written like another value), str keys, finite numbers, no unpaired surrogates, at most
    `MAX_DEPTH` levels and `max_bytes` bytes of canonical text. Raises InvalidRequest otherwise.
    """
    if type(value) is not dict:
        raise InvalidRequest("the arguments of a call must be a JSON object")
    _check_tree(value, max_bytes)
    try:
        text = canonical(value)
    except ValueError:
        raise InvalidRequest("the arguments of a call cannot be written as JSON") from None
    if len(text) > max_bytes:
        raise InvalidRequest(_too_large(max_bytes))
    return text


def _decode(data: bytes) -> str:
    if data.startswith(b"\xef\xbb\xbf"):
        raise InvalidRequest("the JSON document starts with a byte order mark")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in data[:4]:
        raise InvalidRequest("the JSON document is not UTF-8 but UTF-16 or UTF-32")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidRequest("the JSON document is not valid UTF-8") from None
    if not text or text.isspace():
        raise InvalidRequest("the JSON document is empty")
    return text


def _check_depth(text: str, max_depth: int) -> None:
    """Count levels before parsing, so that no parser's own recursion limit decides."""
    if text.count("[") + text.count("{") <= max_depth:
        return
    depth = 0
    for bracket in _NOT_A_BRACKET.sub("", text):
        depth += 1 if bracket in "[{" else -1
        if depth > max_depth:
            raise InvalidRequest(_too_deep(max_depth))


def _check_tree(root: dict[Any, Any], max_bytes: int) -> None:
    """Check level by level; every node is at least one byte, which also bounds values that share parts."""
    level: list[Any] = [root]
    budget = max_bytes
    for _ in range(MAX_DEPTH):
        deeper: list[Any] = []
        for container in level:
            budget -= len(container) + 1
            if budget >= 0:
                budget -= _check_members(container, deeper)
            if budget < 0:
                raise InvalidRequest(_too_large(max_bytes))
        if not deeper:
            return
        level = deeper
    raise InvalidRequest(_too_deep(MAX_DEPTH))


def _check_members(container: Any, deeper: list[Any]) -> int:
    """Check keys and scalars, put containers into `deeper`; return a lower bound of the text's size."""
    size = 0
    children = container
    if type(container) is dict:
        size += _check_keys(container)
        children = container.values()
    for child in children:
        kind = type(child)
        if kind is str:
            size += _check_text(child)
        elif kind is dict or kind is list:
            deeper.append(child)
        else:
            size += _check_scalar(child)
    return size


def _check_keys(container: dict[Any, Any]) -> int:
    try:
        return _check_text("".join(container))
    except TypeError:
        raise InvalidRequest("the arguments hold an object key that is not a string") from None


def _check_scalar(value: Any) -> int:
    """Check a number, a boolean or None; return a lower bound of its text's size beyond one byte."""
    kind = type(value)
    if kind is int or kind is LongInteger:
        # Ten bits are three digits and a bit more.
        return 0 if -_SMALL_INTEGER < value < _SMALL_INTEGER else value.bit_length() * 3 // 10
    if kind is float:
        if not math.isfinite(value):
            raise InvalidRequest(_NOT_FINITE)
    elif value is not None and kind is not bool:
        raise InvalidRequest("the arguments hold a value that is not plain JSON data")
    return 0


def _check_text(text: str) -> int:
    if not text.isascii():
        _check_surrogates(text)
    return len(text)


def _check_surrogates(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidRequest("the JSON document holds an unpaired surrogate") from None


_NOT_FINITE = "the JSON document holds a number that is not finite"
_TOO_LONG_INTEGER = f"the JSON document holds an integer of more than {MAX_INTEGER_DIGITS} digits"


def _too_deep(max_depth: int) -> str:
    return f"the JSON document is nested deeper than {max_depth} levels"


def _too_large(max_bytes: int) -> str:
    return f"the arguments of a call are larger than {max_bytes} bytes"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise InvalidRequest("the JSON document holds an object with a duplicate key")
    return value


def _integer(text: str) -> int:
    if len(text) - text.startswith("-") > MAX_INTEGER_DIGITS:
        raise InvalidRequest(_TOO_LONG_INTEGER)
    return integer(text)


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise InvalidRequest(_NOT_FINITE)
    return value


def _constant(_: str) -> NoReturn:
    raise InvalidRequest(_NOT_FINITE)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant)
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
_UNESCAPED = json.JSONEncoder(ensure_ascii=False)
