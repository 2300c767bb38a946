"""Integers of more digits than the interpreter converts by itself, exact and in reasonable time (C-01).

CPython refuses to turn more than 4,300 digits into an integer or back, because its own way takes a second for a few
hundred thousand. Here reading takes a few hundredths, and what was read keeps its text, so that writing takes nothing.
"""

from __future__ import annotations

import json
import re
import secrets
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, Inexact, localcontext
from functools import lru_cache
from typing import Any, Self

MAX_INTEGER_DIGITS = 262_144
"""As many as the arguments of a call may have bytes."""
PLAIN_DIGITS = 4_300
"""What the interpreter converts unless it was told otherwise."""
_PIECE = 512  # digits; every interpreter converts that many
_LEVELS_MAX = 1_000
_PLAIN_BITS = 2_000  # fewer than the smallest limit that can be set
_SHORT_BITS = 400
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact])


class LongInteger(int):
    """An integer made from its decimal text, which it remembers."""

    text: str

    def __new__(cls, text: str) -> Self:
        """`text` as JSON writes an integer: no leading zeros, no plus sign."""
        digits = text.removeprefix("-")
        value = _value(digits)
        made = super().__new__(cls, -value if digits is not text else value)
        made.text = text
        return made

    def __repr__(self) -> str:
        return self.text

    def __getnewargs__(self) -> tuple[str]:  # type: ignore[override]  # made again from the text, not from a number
        return (self.text,)


def integer(text: str) -> int:
    """The integer that `text` writes; never refuses a number for its length."""
    if len(text) <= PLAIN_DIGITS:
        try:
            return int(text)
        except ValueError:  # the interpreter was started with a lower limit of its own
            return LongInteger(text)
    return LongInteger(text)


def digits_of(value: int) -> str:
    """The decimal text of `value`."""
    if isinstance(value, LongInteger):
        return value.text
    if value < 0:
        return "-" + digits_of(-value)
    return _digits(value)


def read_json(text: str | bytes) -> Any:
    """`json.loads` for text of this package's own, whose integers may be long. Raises what `json.loads` raises."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return json.loads(text, parse_int=integer)


def write_json(value: Any, encoder: json.JSONEncoder) -> str:
    """`encoder.encode(value)`, also with long integers. Raises what `encode` raises."""
    try:
        return encoder.encode(value)
    except ValueError:
        marks = _Marks()
        marked = marks.instead_of_integers(value, _LEVELS_MAX)
        if not marks.texts:
            raise
        return marks.replaced(encoder.encode(marked))


class _Marks:
    """Strings that stand for integers while the rest is written; nobody can know them beforehand."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._name = secrets.token_hex(16)

    def instead_of_integers(self, value: Any, levels: int) -> Any:
        """A copy of `value` with a string in place of every integer that may be too long for the encoder."""
        if isinstance(value, int):
            return self._mark(value) if value.bit_length() > _PLAIN_BITS else value
        if levels and isinstance(value, dict):
            return {key: self.instead_of_integers(one, levels - 1) for key, one in value.items()}
        if levels and isinstance(value, list | tuple):
            return [self.instead_of_integers(one, levels - 1) for one in value]
        return value

    def replaced(self, text: str) -> str:
        """`text` with the integers in their places."""
        return re.sub(rf'"{self._name}:(\d+)"', lambda found: self.texts[int(found[1])], text)

    def _mark(self, value: int) -> str:
        self.texts.append(digits_of(value))
        return f"{self._name}:{len(self.texts) - 1}"


@lru_cache
def _power_of_five(exponent: int) -> int:
    power: int = 5**exponent
    return power


def _value(digits: str) -> int:
    """Half by half, because products of long integers cost less than the digits one by one."""
    if len(digits) <= _PIECE:
        return int(digits)
    low = _PIECE
    while low * 2 < len(digits):
        low *= 2
    # 10**low is 5**low, moved by low bits.
    return ((_value(digits[:-low]) * _power_of_five(low)) << low) + _value(digits[-low:])


def _digits(value: int) -> str:
    """The same the other way round, in decimal arithmetic, whose numbers are written digit by digit."""
    powers: dict[int, Decimal] = {}

    def power_of_two(bits: int) -> Decimal:
        if bits not in powers:
            half = bits // 2
            short = bits <= _SHORT_BITS
            powers[bits] = Decimal(1 << bits) if short else power_of_two(half) * power_of_two(bits - half)
        return powers[bits]

    def decimal(part: int, bits: int) -> Decimal:
        if bits <= _SHORT_BITS:
            return Decimal(part)
        half = bits // 2
        high = part >> half
        return decimal(high, bits - half) * power_of_two(half) + decimal(part - (high << half), half)

    with localcontext(_EXACT):
        return format(decimal(value, value.bit_length()), "f")
