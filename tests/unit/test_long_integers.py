"""Integers beyond what the interpreter converts: exact both ways, quickly, whatever limit it was started with."""

from __future__ import annotations

import copy
import json
import pickle
import random
import sys
import time
from collections.abc import Iterator

import pytest

from ledger.identity import mutation_identity, same_arguments
from ledger.long_integers import LongInteger, digits_of, integer, read_json, write_json
from ledger.strict_json import canonical, check_arguments, loads

COMPACT = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
SIZES = [1, 511, 512, 513, 1024, 4300, 4301, 20_000, 200_000]


@pytest.fixture(params=[640, 4300, 0], ids=["lowest limit", "usual limit", "no limit"])
def limit(request: pytest.FixtureRequest) -> Iterator[int]:
    """The interpreter's own limit for the time of the test."""
    usual = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(request.param)
    yield request.param
    sys.set_int_max_str_digits(usual)


def number_of(digits: int) -> str:
    """A number of so many digits, the same every time, with long runs of zeros and nines in it."""
    chosen = random.Random(digits)
    text = "".join(chosen.choice(("0" * 7, "9" * 7, "1234567")) for _ in range(digits // 7 + 1))
    return "7" + text[: digits - 1]


@pytest.mark.proves("C-01")
@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize("digits", SIZES)
def test_every_digit_is_kept_both_ways(limit: int, digits: int, sign: str) -> None:
    text = sign + number_of(digits)
    value = integer(text)
    # By arithmetic alone: the remainders for two primes, and the size.
    for prime in (10**9 + 7, 2**61 - 1):
        assert abs(value) % prime == _remainder(text.removeprefix("-"), prime)
    assert 10 ** (digits - 1) <= abs(value) < 10**digits
    assert (value < 0) == bool(sign)
    assert digits_of(value) == text
    assert digits_of(value + 0) == text


def _remainder(digits: str, prime: int) -> int:
    found = 0
    for at in range(0, len(digits), 16):
        piece = digits[at : at + 16]
        found = (found * 10 ** len(piece) + int(piece)) % prime
    return found


@pytest.mark.proves("C-01", "C-04")
@pytest.mark.parametrize("digits", [4300, 4301, 20_000, 200_000])
def test_the_canonical_form_and_the_identity_are_those_of_the_text(limit: int, digits: int) -> None:
    text = f'{{"a":[-{number_of(4301)},1],"n":{number_of(digits)},"s":"x"}}'
    value = loads(text.replace(",", " , ").encode())
    assert canonical(value) == check_arguments(value) == text
    assert write_json(read_json(text), COMPACT) == text
    as_python = {"n": value["n"] + 0, "a": [value["a"][0] + 0, 1], "s": "x"}
    assert canonical(as_python) == check_arguments(as_python) == text
    assert mutation_identity("pay", as_python) == mutation_identity("pay", value)
    assert same_arguments(text, value)
    assert not same_arguments(text, value | {"n": value["n"] + 1})


@pytest.mark.proves("C-02")
def test_what_cannot_be_written_is_still_refused() -> None:
    long = 10**5000
    with pytest.raises(ValueError, match="Out of range float"):
        write_json({"n": long, "f": float("nan")}, COMPACT)
    with pytest.raises(ValueError, match="Out of range float"):
        write_json({"f": float("nan")}, COMPACT)
    with pytest.raises(TypeError):
        write_json({"n": long, "o": object()}, COMPACT)
    circle: list[object] = [long]
    circle.append(circle)
    with pytest.raises((ValueError, RecursionError)):
        write_json(circle, COMPACT)
    with pytest.raises(json.JSONDecodeError):
        read_json("[1")


@pytest.mark.proves("C-01")
def test_nothing_that_a_caller_writes_is_taken_for_a_number() -> None:
    value = {"n": 10**5000, "s": "0:0", "t": ["a" * 32 + ":0", '"0:0"', "\\1"]}
    assert read_json(write_json(value, COMPACT)) == value


def test_a_long_integer_is_an_integer_that_can_be_shown_and_copied(limit: int) -> None:
    text = number_of(5000)
    value = LongInteger(text)
    assert (str(value), repr([value])) == (text, f"[{text}]")
    for one in (copy.deepcopy(value), pickle.loads(pickle.dumps(value))):  # noqa: S301  # what was pickled here
        assert (one, one.text, type(one)) == (value, text, LongInteger)
    assert hash(value) == hash(value + 0)


@pytest.mark.proves("C-71")
def test_the_longest_that_is_accepted_takes_no_long_time() -> None:
    body = b'{"n":' + b"8" * 262_144 + b"}"
    began = time.process_time()
    value = loads(body)
    canonical(value)
    write_json({"n": value["n"] + 0}, COMPACT)
    assert time.process_time() - began < 2
