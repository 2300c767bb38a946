"""The line between `not executed` and `unknown`: when the first byte of a request moves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any, cast

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest

from tests.support.wait import wait_until_async
from workers.tools.channel import Health
from workers.tools.connection import Connection
from workers.tools.dispatch import Dispatch, NotSent
from workers.tools.one_call import CURRENT
from workers.tools.process import ServerProcess
from workers.tools.stdio import Writer

MESSAGE = SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call", params={"name": "t"}))


@pytest.mark.proves("C-56")
def test_a_dispatch_is_handed_over_once() -> None:
    dispatch = Dispatch({}, lambda: None)
    dispatch.hand_over()
    with pytest.raises(NotSent):
        dispatch.hand_over()
    assert dispatch.handed_over


@pytest.mark.proves("C-53")
def test_a_refused_dispatch_stays_refused() -> None:
    answers = iter(["lease", None])
    dispatch = Dispatch({}, lambda: next(answers))
    for _ in range(2):
        with pytest.raises(NotSent):
            dispatch.hand_over()
    assert (dispatch.handed_over, dispatch.refusal) == (False, "lease")


@pytest.mark.proves("C-53")
def test_an_abandoned_dispatch_is_never_handed_over() -> None:
    dispatch = Dispatch({}, lambda: None)
    dispatch.abandon("pre_dispatch_deadline")
    with pytest.raises(NotSent):
        dispatch.hand_over()
    assert dispatch.refusal == "pre_dispatch_deadline"


def test_a_dispatch_that_is_on_its_way_cannot_be_abandoned() -> None:
    dispatch = Dispatch({}, lambda: None)
    dispatch.hand_over()
    dispatch.abandon("cancelled")
    assert (dispatch.handed_over, dispatch.refusal) == (True, None)


@pytest.mark.proves("C-56")
def test_what_is_on_its_way_is_never_refused_afterwards() -> None:
    """Its last check may say no by then; taken for a refusal, that would say `not executed` of what was sent."""
    answers = iter([None, "lease"])
    dispatch = Dispatch({}, lambda: next(answers))
    dispatch.hand_over()
    with pytest.raises(NotSent):
        dispatch.hand_over()
    assert (dispatch.handed_over, dispatch.refusal) == (True, None)
    assert next(answers) == "lease", "the check was not asked again"


@pytest.mark.proves("C-56")
def test_an_exchange_that_ended_unsent_can_send_nothing_later() -> None:
    """The call may go on over the next connection, while the first transport still waits for its own."""
    dispatch = Dispatch({}, lambda: None)

    async def main() -> None:
        connection = Connection(lambda: pytest.fail("nothing is opened"), probe=False)
        with pytest.raises(MCPError):
            await connection.exchange("t", {}, dispatch)

    asyncio.run(main())
    with pytest.raises(NotSent):
        dispatch.hand_over()
    assert (dispatch.handed_over, dispatch.refusal) == (False, None)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The reading and the writing end of a server's input."""
    reading, writing = os.pipe()
    yield reading, writing
    for end in (reading, writing):
        try:
            os.close(end)
        except OSError:
            continue


def writer_to(end: int) -> Writer:
    return Writer(ServerProcess(cast(Any, None), end), Health())


def fill(end: int) -> int:
    """How many bytes it took until the pipe was full."""
    filled = 0
    try:
        while True:
            filled += os.write(end, b"x" * 4096)
    except BlockingIOError:
        return filled


@pytest.mark.proves("C-53", "C-56")
def test_while_the_pipe_is_full_nothing_is_handed_over_and_the_check_is_asked_again(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    asked: list[int] = []
    dispatch = Dispatch({}, lambda: asked.append(1))

    async def main() -> None:
        writer = writer_to(writing)
        filled = fill(writing)
        CURRENT.set(dispatch)
        sending = asyncio.create_task(writer.send(MESSAGE))
        await wait_until_async(lambda: asked, 2, "the first check")
        assert not dispatch.handed_over
        while filled:
            filled -= len(os.read(reading, filled))
        await sending
        assert dispatch.handed_over

    asyncio.run(main())
    assert len(asked) == 2
    assert os.read(reading, 4096).endswith(b"}\n")


@pytest.mark.proves("C-56")
def test_a_pipe_that_nobody_reads_took_no_byte(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    dispatch = Dispatch({}, lambda: None)

    async def main() -> None:
        writer = writer_to(writing)
        os.close(reading)
        CURRENT.set(dispatch)
        with pytest.raises(anyio.BrokenResourceError):
            await writer.send(MESSAGE)

    asyncio.run(main())
    assert not dispatch.handed_over


def test_half_a_line_is_the_last_thing_a_pipe_gets(pipe: tuple[int, int]) -> None:
    """What followed it would be read as its end."""
    reading, writing = pipe
    large = {"name": "t", "arguments": {"text": "x" * 200_000}}
    half = SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call", params=large))

    async def main() -> None:
        health = Health()
        writer = Writer(ServerProcess(cast(Any, None), writing), health)
        sending = asyncio.create_task(writer.send(half))
        await asyncio.sleep(0)
        sending.cancel()
        await asyncio.wait([sending])
        assert health.broken.is_set()
        received = os.read(reading, 1 << 20)
        assert not received.endswith(b"\n")
        with pytest.raises(anyio.BrokenResourceError):
            await writer.send(MESSAGE)
        os.close(writing)
        assert os.read(reading, 1 << 20) == b""

    asyncio.run(main())


def test_a_closed_input_wakes_whoever_waits_for_room(pipe: tuple[int, int]) -> None:
    _, writing = pipe

    async def main() -> None:
        process = ServerProcess(cast(Any, None), writing)
        fill(writing)
        sending = asyncio.create_task(Writer(process, Health()).send(MESSAGE))
        await asyncio.sleep(0)
        process.close_stdin()
        with pytest.raises(anyio.BrokenResourceError):
            await asyncio.wait_for(sending, 2)

    asyncio.run(main())
