"""JSON at the door: what two readers could read differently is refused, the rest is exact (C-01, C-02)."""

from __future__ import annotations

import enum
import json
import math
import time
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import InvalidRequest
from ledger.strict_json import BODY_DEPTH, MAX_DEPTH, canonical, canonical_bytes, check_arguments, loads

JSON_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | JSON_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(JSON_TEXT, inner, max_size=4),
    max_leaves=12,
)


def nested(levels: int) -> Any:
    """An object of `levels` levels, its own included, alternating with arrays."""
    value: Any = {}
    for level in range(1, levels):
        value = {"a": value} if level % 2 == 0 or level == levels - 1 else [value]
    return value


def fault_of(data: bytes) -> str:
    with pytest.raises(InvalidRequest) as caught:
        loads(data)
    assert caught.value.code == "invalid_request"
    return str(caught.value)


@pytest.mark.proves("C-02")
@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b'{"amount":NaN}', "not finite"),
        (b'{"amount":Infinity}', "not finite"),
        (b'{"amount":-Infinity}', "not finite"),
        (b'{"amount":1e400}', "not finite"),
        (b'{"amount":-1e999}', "not finite"),
        (b'{"a":[{"b":1e400}]}', "not finite"),
        (b'{"delivery_id":"d-17","delivery_id":"d-18"}', "duplicate key"),
        (b'{"amount":1,"amount":1000}', "duplicate key"),
        (b'{"a":[{"b":{"c":1,"c":2}}]}', "duplicate key"),
        (b'{"amount":1,"\\u0061mount":1000}', "duplicate key"),
        (b'{"s":"\\ud800"}', "unpaired surrogate"),
        (b'{"s":"\\uDFFF tail"}', "unpaired surrogate"),
        (b'{"\\udc00":1}', "unpaired surrogate"),
        (b'["\\udc00\\ud800"]', "unpaired surrogate"),
        (b'["\\ud800","\\udc00"]', "unpaired surrogate"),
        (b'{"s":"\xe9"}', "not valid UTF-8"),
        (b'{"s":"\xed\xa0\x80"}', "not valid UTF-8"),
        (b'{"s":"\xc0\xaf"}', "not valid UTF-8"),
        (b'\xef\xbb\xbf{"a":1}', "byte order mark"),
        ('{"a":1}'.encode("utf-16"), "UTF-16"),
        ('{"a":1}'.encode("utf-16-le"), "UTF-16"),
        ('{"a":1}'.encode("utf-16-be"), "UTF-16"),
        ('{"a":1}'.encode("utf-32"), "UTF-32"),
        (b'{"a":1}{"b":2}', "data after its end"),
        (b"", "empty"),
        (b" \n", "empty"),
        (b'{"a":1,}', "syntax error"),
        (b"{'a':1}", "syntax error"),
        (b'{"a":"\n"}', "syntax error"),
        (b'{"a":01}', "syntax error"),
        (b"[1", "syntax error"),
    ],
)
def test_refuses_what_readers_could_read_differently(data: bytes, fault: str) -> None:
    assert fault in fault_of(data)


@pytest.mark.proves("C-02")
def test_messages_never_quote_content() -> None:
    for data in (b'{"hunter2":NaN}', b'{"hunter2":1,"hunter2":2}', b'{"k":hunter2}', b'{"k":"\\hunter2"}'):
        assert "hunter2" not in fault_of(data)
    for value in ({"k": {"hunter2"}}, {"k": "hunter2\ud800"}, {("hunter2",): 1}, {"k": "hunter2" * 50_000}):
        with pytest.raises(InvalidRequest) as caught:
            check_arguments(value)
        assert "hunter2" not in str(caught.value)


@pytest.mark.proves("C-02")
def test_accepts_what_is_unambiguous() -> None:
    assert loads(b' {"a":[1,2.5,true,null,"\\ud800\\udf48","\xc3\xa9"]} ') == {
        "a": [1, 2.5, True, None, "\U00010348", "é"]
    }
    assert loads(rb'"\\ud800 spelled out"') == r"\ud800 spelled out"
    assert loads(b"1e-400") == 0.0
    assert math.copysign(1, loads(b"-0.0")) == -1


@pytest.mark.proves("C-01")
def test_integers_are_exact_at_any_accepted_size() -> None:
    for number in (18446744073709551617, -9223372036854775809, 9007199254740993, 10**4299, -(10**4299)):
        value = loads(b'{"n":%d}' % number)
        assert value["n"] == number
        assert canonical(value) == f'{{"n":{number}}}'
        assert check_arguments(value) == f'{{"n":{number}}}'


@pytest.mark.proves("C-02")
def test_integers_beyond_the_limit_are_a_clear_refusal() -> None:
    assert "262144 digits" in fault_of(b'{"n":' + b"9" * 262_145 + b"}")
    assert "262144 digits" in fault_of(b"[-1" + b"0" * 262_144 + b"]")
    for number in (10**262_144, -(10**262_144), 1 << 1_000_000):
        with pytest.raises(InvalidRequest, match="larger than 262144 bytes"):
            check_arguments({"n": [number]})


@pytest.mark.proves("C-02")
@pytest.mark.parametrize("levels", [65, 300, 990, 1_100, 100_000])
def test_deeper_than_the_limit_is_refused_quickly(levels: int) -> None:
    started = time.process_time()
    assert "64 levels" in fault_of(b"[" * levels + b"]" * levels)
    assert "64 levels" in fault_of(b'{"a":' * levels + b"1" + b"}" * levels)
    assert "64 levels" in fault_of(b"[" * levels)
    assert time.process_time() - started < 2


@pytest.mark.proves("C-02")
def test_the_limit_counts_levels_not_brackets() -> None:
    assert loads(b"[" * 64 + b"]" * 64)
    wide = b"[" + b",".join([b'{"a":[]}'] * 1000) + b"]"
    assert len(loads(wide)) == 1000
    text = b'["' + b"[{" * 500 + b'\\"' + b"[" * 500 + b'"]'
    assert loads(text)


@pytest.mark.proves("C-02")
def test_arguments_of_64_levels_pass_inside_a_body_and_65_do_not() -> None:
    for levels, fits in ((50, True), (64, True), (65, False), (66, False)):
        arguments = nested(levels)
        body = json.dumps({"calls": [{"tool": "pay", "arguments": arguments}]}).encode()
        if levels == MAX_DEPTH:
            assert loads(body, max_depth=BODY_DEPTH)["calls"][0]["arguments"] == arguments
        if fits:
            assert check_arguments(arguments) == canonical(arguments)
        else:
            with pytest.raises(InvalidRequest, match="64 levels"):
                check_arguments(arguments)
            with pytest.raises(InvalidRequest, match="67 levels"):
                loads(body, max_depth=BODY_DEPTH)


@pytest.mark.proves("C-02")
def test_a_reader_that_allows_more_levels_still_answers() -> None:
    with pytest.raises(InvalidRequest, match="nested deeper"):
        loads(b"[" * 200_000 + b"]" * 200_000, max_depth=10**6)


@pytest.mark.proves("C-02")
def test_hostile_texts_are_judged_in_linear_time() -> None:
    started = time.process_time()
    many_keys = json.dumps({str(number): number for number in range(200_000)}).encode()
    assert len(loads(many_keys)) == 200_000
    assert "syntax error" in fault_of(b"[" + b"[]," * 70 + b'"' + b'\\"' * 500_000)
    assert "syntax error" in fault_of(b"[[],[" + b"[]," * 300_000)
    assert time.process_time() - started < 10


class Colour(enum.StrEnum):
    RED = "red"


class Count(int):
    """An integer that may print itself as another."""


@pytest.mark.proves("C-02")
@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (None, "must be a JSON object"),
        ([], "must be a JSON object"),
        ("{}", "must be a JSON object"),
        (OrderedDict(a=1), "must be a JSON object"),
        ({1: 2}, "key that is not a string"),
        ({"a": [{None: 2}]}, "key that is not a string"),
        ({True: 2}, "key that is not a string"),
        ({"a": math.nan}, "not finite"),
        ({"a": [{"b": math.inf}]}, "not finite"),
        ({"a": -math.inf}, "not finite"),
        ({"a": "\ud800"}, "unpaired surrogate"),
        ({"a": "\ud800\udf48"}, "unpaired surrogate"),
        ({"\udfff": 1}, "unpaired surrogate"),
        ({"a": (1, 2)}, "not plain JSON data"),
        ({"a": {1, 2}}, "not plain JSON data"),
        ({"a": b"x"}, "not plain JSON data"),
        ({"a": Colour.RED}, "not plain JSON data"),
        ({"a": Count(1)}, "not plain JSON data"),
        ({"a": OrderedDict(b=1)}, "not plain JSON data"),
        ({"a": object()}, "not plain JSON data"),
    ],
)
def test_arguments_built_in_python_are_checked_like_text(value: object, fault: str) -> None:
    with pytest.raises(InvalidRequest, match=fault):
        check_arguments(value)


@pytest.mark.proves("C-02")
def test_arguments_over_256_kib_are_refused_in_canonical_bytes() -> None:
    room = 262_144 - len('{"a":""}')
    assert len(check_arguments({"a": "x" * room})) == 262_144
    with pytest.raises(InvalidRequest, match="larger than 262144 bytes"):
        check_arguments({"a": "x" * (room + 1)})
    with pytest.raises(InvalidRequest, match="larger than 262144 bytes"):
        check_arguments({"a": "é" * 50_000})
    assert check_arguments({"a": 1}, max_bytes=7) == '{"a":1}'
    with pytest.raises(InvalidRequest, match="larger than 6 bytes"):
        check_arguments({"a": 1}, max_bytes=6)


@pytest.mark.proves("C-02")
def test_circles_and_shared_parts_end_in_a_refusal() -> None:
    circle: dict[str, Any] = {}
    circle["self"] = circle
    with pytest.raises(InvalidRequest, match="64 levels"):
        check_arguments(circle)
    shared: Any = [1]
    for _ in range(60):
        shared = [shared, shared]
    started = time.process_time()
    with pytest.raises(InvalidRequest, match="larger than"):
        check_arguments({"a": shared})
    assert time.process_time() - started < 5


@pytest.mark.proves("C-01")
@settings(deadline=None)
@given(JSON_VALUE)
def test_canonical_is_json_dumps_and_survives_a_round_trip(value: Any) -> None:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    assert canonical(value) == text
    assert canonical_bytes(value) == text.encode("ascii")
    assert canonical(loads(text.encode())) == text
    assert check_arguments({"value": value}) == f'{{"value":{text}}}'


@pytest.mark.proves("C-02")
@settings(deadline=None)
@given(st.binary(max_size=40) | st.text(alphabet='[]{}",:\\u0d8e1.-N ', max_size=40).map(str.encode))
def test_any_bytes_are_a_value_or_an_invalid_request(data: bytes) -> None:
    try:
        value = loads(data)
    except InvalidRequest:
        return
    assert canonical(value)
