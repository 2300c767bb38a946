"""The owner's path for one session on a real store: what is sent, what never is, and what is settled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine

import pytest

from ledger import runs
from ledger.attempts import Begun
from ledger.records import Run
from ledger.states import CallStatus
from tests.support.direct import shard_of
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until_async
from tests.support.worker_parts import CountingRouter, admitter, claim, parts
from workers.owner import SessionOwner
from workers.retrying import landed
from workers.shared import Shared
from workers.tools.results import CallContext, ToolReply, Verdict

SESSION = "session-1"


def admit(url: str, shared: Shared, payments: int = 1) -> Run:
    """A plan of payments, ready to be claimed; errors do not stop it."""
    with admitter(url, shared) as direct:
        calls = [("pay", {"id": number}) for number in range(payments)]
        return direct.admit(SESSION, "d1", calls, on_error="continue").run


async def calls_of(shared: Shared, run: Run) -> list[tuple[CallStatus, str | None]]:
    """Status and refusal of each call of a run, as stored."""
    found = (await shared.store.run(runs.read_run(shard_of(SESSION), run.run_id, "acme"))).run
    assert found is not None
    return [(call.status, call.refusal) for call in found.calls]


def play(scene: Callable[[], Coroutine[None, None, None]]) -> None:
    """Runs one scene in a loop of its own."""
    asyncio.run(scene())


@pytest.mark.proves("C-04")
def test_arguments_that_changed_in_the_store_are_never_sent(valkey: ValkeyProcess) -> None:
    async def scene() -> None:
        router = CountingRouter()
        async with parts(valkey.url, router) as shared:
            run = admit(valkey.url, shared)
            client = valkey.client()
            (key,) = client.keys("ml:*:args:*")
            client.hset(key, f"{run.run_id}:0", '{"id":"another"}')
            owner, work, asked_at = await claim(shared, SESSION)
            await owner.run(work, asked_at)
            assert router.calls == []
            assert await calls_of(shared, run) == [(CallStatus.NOT_EXECUTED, "arguments_changed")]

    play(scene)


@pytest.mark.proves("C-23")
def test_an_intent_confirmed_too_late_is_put_back(valkey: ValkeyProcess) -> None:
    async def scene() -> None:
        router = CountingRouter()
        async with parts(valkey.url, router, checkpoint_wait_seconds=1.0) as shared:
            run = admit(valkey.url, shared, payments=2)
            owner, work, asked_at = await claim(shared, SESSION)
            await owner.run(work, asked_at - 1.5)
            assert router.calls == [{"id": 1}]
            assert await calls_of(shared, run) == [
                (CallStatus.NOT_EXECUTED, "mutation_checkpoint_unavailable"),
                (CallStatus.COMPLETED, None),
            ]

    play(scene)


@pytest.mark.proves("C-53")
@pytest.mark.parametrize("why", ["lease", "lost", "cancelled"])
def test_the_last_check_stops_a_call_whose_intent_is_written(valkey: ValkeyProcess, why: str) -> None:
    async def scene() -> None:
        router = CountingRouter()
        async with parts(valkey.url, router, lease_seconds=10.0) as shared:
            run = admit(valkey.url, shared)
            owner, work, asked_at = await claim(shared, SESSION)
            if why == "lease":
                # A fifth of the lease, at most two seconds, must be left.
                owner.lease_from = time.monotonic() - (shared.settings.lease - shared.settings.lease_margin) - 0.01
            elif why == "lost":
                owner.lose()
            else:
                owner.cancel_asked(1)
            await owner.run(work, asked_at)
            assert router.calls == []
            assert router.refused == ["cancelled" if why == "cancelled" else "lease"]
            assert await calls_of(shared, run) == [(CallStatus.NOT_EXECUTED, None)]

    play(scene)


@pytest.mark.proves("C-53")
def test_a_lease_with_enough_left_is_enough(valkey: ValkeyProcess) -> None:
    async def scene() -> None:
        router = CountingRouter()
        async with parts(valkey.url, router, lease_seconds=10.0) as shared:
            admit(valkey.url, shared)
            owner, work, asked_at = await claim(shared, SESSION)
            owner.lease_from = time.monotonic() - (shared.settings.lease - shared.settings.lease_margin) + 1.0
            await owner.run(work, asked_at)
            assert router.calls == [{"id": 0}]

    play(scene)


@pytest.mark.proves("C-55")
def test_a_cancel_stops_the_call_of_its_own_step_only(valkey: ValkeyProcess) -> None:
    async def scene() -> None:
        router = CountingRouter()
        async with parts(valkey.url, router) as shared:
            run = admit(valkey.url, shared, payments=3)
            owner, work, asked_at = await claim(shared, SESSION)
            # The answer of a renewal may come before that of the begin that it speaks of.
            owner.cancel_asked(2)
            await owner.run(work, asked_at)
            assert router.calls == [{"id": 0}, {"id": 2}]
            statuses = [status for status, _ in await calls_of(shared, run)]
            assert statuses == [CallStatus.COMPLETED, CallStatus.NOT_EXECUTED, CallStatus.COMPLETED]

    play(scene)


@pytest.mark.proves("C-56")
def test_an_attempt_offered_twice_is_sent_once(valkey: ValkeyProcess) -> None:
    async def scene() -> None:
        router = CountingRouter()
        async with parts(valkey.url, router) as shared:
            run = admit(valkey.url, shared)
            owner, work, asked_at = await claim(shared, SESSION)
            assert isinstance(work, Begun)
            await owner.run(work, asked_at)
            await owner.run(work, asked_at)
            assert router.calls == [{"id": 0}]
            assert await calls_of(shared, run) == [(CallStatus.COMPLETED, None)]

    play(scene)


def test_a_router_that_raises_leaves_an_unknown_outcome(valkey: ValkeyProcess) -> None:
    def fail(context: CallContext) -> ToolReply:
        raise KeyError(context.attempt)

    async def scene() -> None:
        router = CountingRouter(fail)
        async with parts(valkey.url, router) as shared:
            run = admit(valkey.url, shared, payments=2)
            owner, work, asked_at = await claim(shared, SESSION)
            await owner.run(work, asked_at)
            assert await calls_of(shared, run) == [(CallStatus.OUTCOME_UNKNOWN, None)] * 2

    play(scene)


@pytest.mark.proves("C-24", "C-26")
def test_a_report_outlasts_a_store_that_is_away_and_one_that_cannot_promise(valkey: ValkeyProcess) -> None:
    """The store dies while a call is out, comes back unable to keep its promise, and is put right by a person."""

    async def scene() -> None:
        sent = asyncio.Event()

        def reply(_context: CallContext) -> ToolReply:
            valkey.kill9()
            sent.set()
            return ToolReply(Verdict.COMPLETED)

        router = CountingRouter(reply)
        async with parts(valkey.url, router, settlement_wait_seconds=0.5, checkpoint_wait_seconds=5.0) as shared:
            run = admit(valkey.url, shared, payments=1)
            owner, work, asked_at = await claim(shared, SESSION)
            working = asyncio.create_task(owner.run(work, asked_at))
            await sent.wait()
            await wait_until_async(lambda: shared.unlanded == 1, 10, "the report to wait")
            valkey.settings["appendfsync"] = "everysec"
            await asyncio.to_thread(valkey.restart)
            await wait_until_async(lambda: shared.store.report is not None and bool(shared.store.report.bad), 10, "bad")
            assert shared.unlanded == 1
            valkey.client().config_set("appendfsync", "always")
            await asyncio.wait_for(working, 15)
            assert shared.unlanded == 0
            assert await calls_of(shared, run) == [(CallStatus.COMPLETED, None)]
            assert len(router.calls) == 1

    play(scene)


@pytest.mark.proves("C-27")
def test_a_report_to_a_store_that_went_back_waits_for_a_person(valkey: ValkeyProcess) -> None:
    async def scene() -> None:
        router = CountingRouter()
        async with parts(valkey.url, router, settlement_wait_seconds=0.2) as shared:
            shard = shard_of(SESSION)
            valkey.client().flushall()
            waiting = asyncio.create_task(landed(shared, runs.read_run(shard, "07" + "0" * 32, "acme")))
            await wait_until_async(lambda: shared.unlanded == 1, 10, "the report to wait")
            assert not waiting.done()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert shared.unlanded == 0

    play(scene)


@pytest.mark.proves("C-34")
def test_a_stop_begins_nothing_more(valkey: ValkeyProcess) -> None:
    async def scene() -> None:
        shared_now: list[Shared] = []

        def stop(_context: CallContext) -> ToolReply:
            shared_now[0].stopping.set()
            return ToolReply(Verdict.COMPLETED)

        router = CountingRouter(stop)
        async with parts(valkey.url, router) as shared:
            shared_now.append(shared)
            run = admit(valkey.url, shared, payments=2)
            owner, work, asked_at = await claim(shared, SESSION)
            await owner.run(work, asked_at)
            assert isinstance(owner, SessionOwner)
            assert not owner.given_up
            assert [status for status, _ in await calls_of(shared, run)] == [CallStatus.COMPLETED, CallStatus.QUEUED]

    play(scene)
