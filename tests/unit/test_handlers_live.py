"""One live handler run without a store: the order of its calls, what stops it, and what it is told then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ledger.handlers import CallReport, HandlerCall, HandlerStart
from ledger.states import CallStatus
from workers.handlers.live import LiveHandler
from workers.handlers.results import (
    CallDenied,
    CallResult,
    CeilingReached,
    HandlerStopped,
    OwnerLost,
    RunCancelled,
)

START = HandlerStart("s", "r", "h", 1, "s1", "ops", "dana", "agent", None, None, None, None, 60_000, 50_000, 0, 0, 0)


class Desk:
    """Writes every proposal down and answers that it waits, unless told otherwise."""

    def __init__(self, status: CallStatus = CallStatus.WAITING_FOR_APPROVAL) -> None:
        self.status = status
        self.asked: list[tuple[int, str]] = []

    def prepare(self, tool: str, arguments: object, ordinal: int) -> HandlerCall:
        return HandlerCall(ordinal, tool, "{}", True, None, None, False, "approval")

    async def propose(self, live: LiveHandler, call: HandlerCall) -> CallReport:
        self.asked.append((call.ordinal, call.tool))
        await asyncio.sleep(0)
        return report(self.status, call.ordinal)

    def opened(self, live: LiveHandler) -> None:
        """Nobody to tell."""


def report(status: CallStatus, index: int = 0) -> CallReport:
    """What the ledger says of a call."""
    return CallReport(index, status, None, None, 40_000, 0, None, None, None)


def completed(call: str = "one") -> CallResult:
    """A call's end."""
    return CallResult(call, "m", CallStatus.COMPLETED)


async def settle_down() -> None:
    """Lets everything go on that can."""
    for _ in range(10):
        await asyncio.sleep(0)


def played(story: Callable[[LiveHandler, Desk], Coroutine[Any, Any, None]], desk: Desk | None = None) -> None:
    """Runs a story in a loop of its own, which must be left empty."""

    async def main() -> None:
        made = desk or Desk()
        await story(LiveHandler(START, asyncio.get_running_loop().time(), made), made)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left

    asyncio.run(main())


@pytest.mark.proves("C-31")
def test_calls_are_asked_for_one_after_the_other_in_their_order() -> None:
    async def story(live: LiveHandler, desk: Desk) -> None:
        calls = [asyncio.ensure_future(live.call(name, {})) for name in ("one", "two")]
        await settle_down()
        assert desk.asked == [(0, "one")]
        assert live.waits_for_person
        live.deliver(0, completed())
        await settle_down()
        assert desk.asked == [(0, "one"), (1, "two")]
        live.report(report(CallStatus.DENIED, 1))
        assert (await calls[0]).completed
        with pytest.raises(CallDenied):
            await calls[1]

    played(story)


@pytest.mark.proves("C-55")
@pytest.mark.parametrize("why", [RunCancelled("x"), CeilingReached("x"), OwnerLost("x")])
def test_who_waits_for_a_person_hears_why_it_stops(why: HandlerStopped) -> None:
    async def story(live: LiveHandler, desk: Desk) -> None:
        call = asyncio.ensure_future(live.call("one", {}))
        await settle_down()
        live.stop(why)
        with pytest.raises(type(why)):
            await call
        with pytest.raises(type(why)):
            await live.call("two", {})
        assert desk.asked == [(0, "one")]

    played(story)


@pytest.mark.proves("C-24", "C-50")
def test_a_call_in_flight_is_waited_for_past_the_ceiling_but_not_past_the_loss_of_the_session() -> None:
    async def story(live: LiveHandler, _: Desk) -> None:
        call = asyncio.ensure_future(live.call("one", {}))
        await settle_down()
        assert live.open is not None
        live.open.in_flight = True
        live.stop(CeilingReached("x"))
        await settle_down()
        assert not call.done()
        live.deliver(0, completed())
        assert (await call).completed

        second = LiveHandler(START, 0.0, Desk())
        call = asyncio.ensure_future(second.call("one", {}))
        await settle_down()
        assert second.open is not None
        second.open.in_flight = True
        second.stop(OwnerLost("x"))
        with pytest.raises(OwnerLost):
            await call

    played(story)


def test_the_first_reason_stays() -> None:
    async def story(live: LiveHandler, _: Desk) -> None:
        live.stop(RunCancelled("first"))
        live.stop(OwnerLost("second"))
        with pytest.raises(RunCancelled):
            await live.call("one", {})

    played(story)


@pytest.mark.proves("C-24")
def test_when_its_handler_is_over_nobody_waits_for_its_calls_any_more() -> None:
    async def story(live: LiveHandler, _: Desk) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(live.call("one", {}), 0.01)
        assert live.open is not None
        await live.quiet()
        assert live.open is None

    played(story)


@pytest.mark.proves("C-51")
def test_its_clock_stands_still_while_a_person_is_asked_and_never_passes_the_ceiling() -> None:
    async def story(live: LiveHandler, _: Desk) -> None:
        now = asyncio.get_running_loop().time()
        assert live.deadline_monotonic == pytest.approx(now + 50, abs=0.5)
        call = asyncio.ensure_future(live.call("one", {}))
        await settle_down()
        assert live.deadline_monotonic == pytest.approx(now + 40, abs=0.5)
        live.ceiling = now + 5
        assert live.deadline_monotonic == now + 5
        live.deliver(0, completed())
        await call

    played(story)
