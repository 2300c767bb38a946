"""Switching claiming on and off, and stopping in the middle of a claim."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ledger.ownership import ClaimReply
from tests.support.proxy import TcpProxy
from tests.support.publishing import session_in
from tests.support.scripted import marker, preload
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until_async
from tests.support.worker_parts import CountingRouter, admitter, parts
from workers.claiming import Claimer
from workers.shared import Shared


@asynccontextmanager
async def claiming(
    shared: Shared, claimed: list[ClaimReply], owned: Callable[[], int] = lambda: 0
) -> AsyncIterator[Claimer]:
    """A claimer at work; `owned` says how many sessions the worker has."""
    claimer = Claimer(shared, lambda _shard, _at, reply: claimed.append(reply), owned)
    task = asyncio.create_task(claimer.run())
    try:
        yield claimer
    finally:
        shared.stopping.set()
        claimer.stop()
        await asyncio.wait_for(task, 10)


@pytest.mark.proves("C-31")
def test_asked_to_look_while_switching_off_stays_on(valkey: ValkeyProcess) -> None:
    """The drain job comes when some promises are taken back already: its session must not wait for the sweep."""

    async def scene(proxy: TcpProxy) -> None:
        claimed: list[ClaimReply] = []
        preload(valkey, "switch_off")
        async with parts(proxy.url, CountingRouter()) as shared, claiming(shared, claimed) as claimer:
            answer = proxy.hold_reply(marker("switch_off"))
            claimer.switch_on()
            await wait_until_async(answer.arrived.is_set, 10, "the first promise to be taken back")
            # In shard 0, whose promise is gone by now.
            with admitter(valkey.url, shared) as direct:
                direct.admit(session_in(0), "d1", [("pay", {"id": 1})])
            claimer.switch_on()
            await asyncio.to_thread(answer.release)
            await wait_until_async(lambda: any(reply.sessions for reply in claimed), 5, "the session to be claimed")

    with TcpProxy(valkey.port) as proxy:
        asyncio.run(scene(proxy))


@pytest.mark.proves("C-31")
def test_claiming_ends_when_there_is_nothing_to_do(valkey: ValkeyProcess) -> None:
    async def scene() -> None:
        async with parts(valkey.url, CountingRouter()) as shared, claiming(shared, []) as claimer:
            claimer.switch_on()
            await wait_until_async(lambda: not claimer.is_on, 10, "claiming to end")
            assert valkey.client().keys("ml:*:awake") == []

    asyncio.run(scene())


def test_a_full_worker_neither_claims_nor_spins(valkey: ValkeyProcess) -> None:
    async def scene() -> None:
        claimed: list[ClaimReply] = []
        asked: list[int] = []
        async with parts(valkey.url, CountingRouter()) as shared:

            def full() -> int:
                asked.append(1)
                return shared.settings.concurrency

            with admitter(valkey.url, shared) as direct:
                direct.admit("session", "d1", [("pay", {"id": 1})])
            async with claiming(shared, claimed, full) as claimer:
                claimer.switch_on()
                loop = asyncio.get_running_loop()
                until = loop.time() + 0.5
                await wait_until_async(lambda: loop.time() > until, 5, "half a second")
                assert claimed == []
                # A place is waited for; asking every ten milliseconds would be fifty times two questions by now.
                assert len(asked) < 20

    asyncio.run(scene())


def make_unreadable(client: Any) -> None:
    """The one session that there is looks as a newer version would write it."""
    (name,) = client.keys("ml:*:session:*")
    raw: bytes = client.hget(name, "meta")
    client.hset(name, "meta", b"\x02" + raw[1:])


@pytest.mark.proves("C-31")
@pytest.mark.parametrize("last", [False, True])
def test_a_session_of_a_newer_version_makes_no_worker_spin_and_delays_no_other_session(
    valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    """Its shard's turn may come first, or when nothing is left to ask for."""
    monkeypatch.setattr("workers.claiming.random.shuffle", lambda shards: shards.sort(reverse=last))

    def calls() -> int:
        stats: dict[str, Any] = valkey.client().info("commandstats")
        return sum(int(stats.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in ("fcall", "evalsha"))

    async def scene() -> None:
        claimed: list[ClaimReply] = []
        async with parts(valkey.url, CountingRouter()) as shared:
            with admitter(valkey.url, shared) as direct:
                direct.admit(session_in(0), "d1", [("pay", {"id": 1})])
                make_unreadable(valkey.client())
                async with claiming(shared, claimed) as claimer:
                    claimer.switch_on()
                    loop = asyncio.get_running_loop()
                    before, until = calls(), loop.time() + 2.5
                    await wait_until_async(lambda: loop.time() > until, 10, "two seconds and a half")
                    # Each of 16 shards once a second, the one again when the worker wants to go off.
                    assert 0 < calls() - before < 200
                    assert claimer.is_on
                    # Nobody is told of it, as the other one is in front of it: the next tick finds it.
                    direct.admit(session_in(0), "d2", [("pay", {"id": 2})])
                    await wait_until_async(
                        lambda: any(reply.sessions for reply in claimed), 5, "the session to be claimed"
                    )

    asyncio.run(scene())


@pytest.mark.proves("C-31")
def test_a_claim_that_is_on_its_way_holds_up_no_other_shard(valkey: ValkeyProcess) -> None:
    async def scene(proxy: TcpProxy) -> None:
        claimed: list[ClaimReply] = []
        preload(valkey, "claim_sessions")
        async with parts(proxy.url, CountingRouter()) as shared, claiming(shared, claimed) as claimer:
            claimer.switch_on()
            await wait_until_async(lambda: not claimer.looking, 10, "the first look to be answered")
            with admitter(valkey.url, shared) as direct:
                direct.admit(session_in(3), "d1", [("pay", {"id": 1})])
                direct.admit(session_in(5), "d2", [("pay", {"id": 2})])
            slow = proxy.hold_reply(b"ml:{03}:seq")
            claimer.hint(3)
            await wait_until_async(slow.arrived.is_set, 10, "the answer about shard 3 to be held")
            claimer.hint(5)
            await wait_until_async(lambda: any(reply.sessions for reply in claimed), 5, "shard 5 to be claimed")
            await asyncio.to_thread(slow.release)
            await wait_until_async(lambda: sum(len(one.sessions) for one in claimed) == 2, 5, "shard 3, too")

    with TcpProxy(valkey.port) as proxy:
        asyncio.run(scene(proxy))


@pytest.mark.proves("C-23", "C-31")
def test_nothing_is_claimed_where_nothing_is_known_to_be_ready(valkey: ValkeyProcess) -> None:
    """The look of every second only asks: a claim that a stalled store answers late would begin calls too late."""

    async def scene() -> None:
        claimed: list[ClaimReply] = []
        async with parts(valkey.url, CountingRouter()) as shared, claiming(shared, claimed) as claimer:
            asked: list[int] = []
            offer = shared.handlers.places.offer

            def counting(most: int) -> Any:
                asked.append(most)
                return offer(most)

            claimer.switch_on()
            await wait_until_async(lambda: not claimer.looking, 10, "the first look to be answered")
            shared.handlers.places.offer = counting  # type: ignore[method-assign]  # every claim asks for its places
            await wait_until_async(lambda: len(asked) >= 16, 10, "the next look")
            assert set(asked) == {0}
            # Whoever is ready all the same, with no hint of it, is found by that look.
            with admitter(valkey.url, shared) as direct:
                direct.admit(session_in(7), "d1", [("pay", {"id": 1})])
            await wait_until_async(lambda: any(reply.sessions for reply in claimed), 5, "the session to be claimed")

    asyncio.run(scene())


@pytest.mark.proves("C-27")
def test_a_worker_on_a_refused_store_neither_sleeps_nor_spins(valkey: ValkeyProcess) -> None:
    def commands() -> int:
        info: dict[str, Any] = valkey.client().info("stats")
        return int(info["total_commands_processed"])

    async def scene() -> None:
        async with parts(valkey.url, CountingRouter()) as shared, claiming(shared, []) as claimer:
            valkey.client().flushall()
            claimer.switch_on()
            loop = asyncio.get_running_loop()
            before, until = commands(), loop.time() + 2.5
            await wait_until_async(lambda: loop.time() > until, 10, "two seconds and a half")
            assert commands() - before < 300
            assert claimer.is_on

    asyncio.run(scene())
