"""What reaches the server is what was approved, to the digit, with the ids that let it recognise a repeat."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.config import McpServerConfig
from ledger.long_integers import read_json, write_json
from tests.support.tool_calls import TRACEPARENT, FakeServer, call_context, routed
from workers.tools import Verdict

# Arguments as JSON text, canonical form.
EXACT = [
    '{"account":18446744073709551617}',
    '{"account":-9223372036854775809}',
    '{"account":' + "7" * 4000 + "}",
    '{"account":-' + "7" * 4301 + "}",
    '{"account":[' + "7" * 200_000 + "]}",
    '{"n":9007199254740993}',
    '{"n":1}',
    '{"n":1.0}',
    '{"n":true}',
    '{"n":-0.0}',
    '{"n":1e-07}',
    '{"n":0.1}',
    '{"n":null,"m":[null,{"k":null}]}',
    '{"_meta":{"a":1},"name":"x","self":2}',
    '{"s":"\\u2028\\u007f</script>\\ud83d\\ude00","t":"cafe\\u0301"}',
    "{}",
    '{"a":' + "[" * 63 + "]" * 63 + "}",
]


@pytest.fixture(params=["stdio", "http", "http modern"])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[FakeServer, McpServerConfig]]:
    """A server on each transport, and the configuration that leads to it."""
    revision = "modern" if request.param.endswith("modern") else "legacy"
    fake = FakeServer(tmp_path, revision=revision)
    if request.param == "stdio":
        yield fake, fake.stdio()
        return
    fake.start_http()
    yield fake, fake.http()
    fake.stop_http()


@pytest.mark.proves("C-01", "C-02")
def test_arguments_arrive_exactly(server: tuple[FakeServer, McpServerConfig]) -> None:
    fake, config = server

    async def main() -> None:
        async with routed(config) as router:
            for text in EXACT:
                reply = await router.call("mcp__fake__ok", read_json(text), call_context())
                assert reply.verdict is Verdict.COMPLETED, reply.detail

    asyncio.run(main())
    arrived = [canonical(read_json(line["text"])["params"]["arguments"]) for line in fake.events("effect")]
    assert arrived == [canonical(read_json(text)) for text in EXACT]


def canonical(value: Any) -> str:
    return write_json(value, json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False))


@pytest.mark.proves("C-02", "C-56")
@pytest.mark.parametrize(
    "arguments", [{"n": float("nan")}, {"n": float("inf")}, {"s": {1, 2}}], ids=["nan", "infinity", "set"]
)
def test_arguments_json_does_not_have_are_not_sent(
    server: tuple[FakeServer, McpServerConfig], arguments: dict[str, Any]
) -> None:
    fake, config = server

    async def main() -> None:
        async with routed(config) as router:
            reply = await router.call("mcp__fake__ok", arguments, call_context())
            assert reply.verdict is Verdict.NOT_EXECUTED
            # The connection is as good as before.
            assert (await router.call("mcp__fake__ok", {}, call_context())).verdict is Verdict.COMPLETED

    asyncio.run(main())
    assert fake.effects() == 1


@pytest.mark.proves("C-53")
def test_each_call_carries_its_ids_and_trace(server: tuple[FakeServer, McpServerConfig]) -> None:
    fake, config = server

    async def main() -> None:
        async with routed(config) as router:
            await router.call("mcp__fake__ok", {}, call_context(attempt="token-9"))

    asyncio.run(main())
    (effect,) = fake.events("effect")
    meta = {key: value for key, value in effect["meta"].items() if not key.startswith("io.modelcontextprotocol/")}
    assert meta == {
        "mutation-ledger/mutation_id": "5" * 64,
        "mutation-ledger/logical_turn_id": "turn-1",
        "mutation-ledger/attempt": "token-9",
        "traceparent": TRACEPARENT,
    }


@pytest.mark.proves("C-03")
def test_the_longest_configured_server_name_wins(tmp_path: Path) -> None:
    fake = FakeServer(tmp_path)

    async def main() -> None:
        async with routed(fake.stdio(), name="my__fake_server") as router:
            reply = await router.call("mcp__my__fake_server__ok", {}, call_context())
            assert reply.verdict is Verdict.COMPLETED
            for tool in ("mcp__my__ok", "mcp__other__ok", "mcp__my__fake_server__", "ok", "mcp__"):
                reply = await router.call(tool, {}, call_context())
                assert (reply.verdict, reply.reason) == (Verdict.NOT_EXECUTED, "unknown_tool")

    asyncio.run(main())
    assert fake.effects() == 1
