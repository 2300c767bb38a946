"""Lines of a stdio server: messages, stray output, and what must not be trusted."""

from __future__ import annotations

import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from workers.tools.wire import BrokenLine, decode, encode


def reply(result: str, request_id: str = "7") -> bytes:
    return f'{{"jsonrpc":"2.0","id":{request_id},"result":{result}}}\n'.encode()


def test_a_response_keeps_integers_exact() -> None:
    message = decode(reply('{"a":18446744073709551617,"b":1.0}'))
    assert isinstance(message, JSONRPCResponse)
    assert message.id == 7
    assert repr(message.result) == "{'a': 18446744073709551617, 'b': 1.0}"


@pytest.mark.parametrize(
    "line",
    [
        *(b"\n", b"Server listening on stdio\n", b"[INFO] ready\n", b"{ a: 1 }\n", b"{\n", b"\xff\xfe{\n", b"{\xff}\n"),
        *(b'{"level":"info"}\n', b'["jsonrpc"]\n', b"42\n"),
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n',
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}\n',
        b'{"jsonrpc":"2.0","id":1,"method":7}\n',
    ],
)
def test_stray_output_is_passed_over(line: bytes) -> None:
    assert decode(line) is None


def test_a_changed_tool_list_and_requests_are_passed_on() -> None:
    changed = decode(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n')
    assert isinstance(changed, JSONRPCNotification)
    assert isinstance(decode(b'{"jsonrpc":"2.0","id":"a","method":"ping"}\n'), JSONRPCRequest)


@pytest.mark.proves("C-56")
@pytest.mark.parametrize(
    "line",
    [
        reply('{"a":"\xc3"}').replace("\xc3".encode(), b"\xc3\x28"),
        b'{"jsonrpc":"2.0","id":7,"result":{}\n',
        b'{"jsonrpc":"2.0","id":7,"result":{}}{"jsonrpc"\n',
        reply("{}", request_id="1.5"),
        reply("{}", request_id="true"),
        reply("{}", request_id="[]"),
    ],
)
def test_a_reply_that_nobody_can_place_ends_the_trust(line: bytes) -> None:
    with pytest.raises(BrokenLine):
        decode(line)


@pytest.mark.proves("C-56")
@pytest.mark.parametrize(
    "line",
    [
        reply('"created"'),
        reply("[]"),
        reply("null"),
        b'{"jsonrpc":"2.0","id":7}\n',
        b'{"jsonrpc":"1.0","id":7,"result":{}}\n',
        b'{"jsonrpc":"2.0","id":7,"error":"no"}\n',
        b'{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":"both"}}\n',
    ],
)
def test_a_malformed_reply_is_an_error_of_its_own_request(line: bytes) -> None:
    message = decode(line)
    assert isinstance(message, JSONRPCError)
    assert message.id == 7


def test_content_beyond_a_parser_is_replaced_by_what_gets_withheld() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    tricky = json.dumps('[{\\"' + "[" * 10)
    started = time.monotonic()
    message = decode(reply(f'{{"isError":true,"s":{tricky},"a":{deep},"n":{"9" * 6000},"b":{{"c":1}}}}'))
    assert time.monotonic() - started < 2
    assert isinstance(message, JSONRPCResponse)
    assert message.result["isError"] is True
    assert message.result["s"] == json.loads(tricky)
    assert message.result["b"] == {"c": 1}
    assert math.isnan(message.result["n"])
    innermost = message.result["a"]
    while isinstance(innermost, list):
        (innermost,) = innermost
    assert math.isnan(innermost)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@pytest.mark.proves("C-01")
@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_arguments_leave_exactly_as_they_are(arguments: dict[str, object]) -> None:
    line = encode(JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call", params={"arguments": arguments}))
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    sent = json.loads(line)["params"]["arguments"]
    assert json.dumps(sent, sort_keys=True) == json.dumps(arguments, sort_keys=True)


@pytest.mark.parametrize("value", [math.nan, math.inf, {1}, object()])
def test_what_json_does_not_have_never_becomes_a_line(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        encode(JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call", params={"arguments": {"a": value}}))
