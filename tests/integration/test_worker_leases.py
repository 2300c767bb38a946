"""Renewals and signals: leases hold while other sessions are noisy, and a dead signal connection is noticed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from ledger.config import RedisConfig
from ledger.store import StoreSettings, hints
from tests.support.direct import shard_of
from tests.support.proxy import TcpProxy
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until_async
from tests.support.worker_parts import CountingRouter, admitter, claim, parts
from workers.complaints import QUIET_SECONDS, Complaints
from workers.leases import LeaseKeeper
from workers.signals import SignalListener


def lease_end(valkey: ValkeyProcess, session: str, sid: str) -> float:
    """The session's lease end in the store, ms."""
    score = valkey.client().zscore(f"ml:{{{shard_of(session):02x}}}:owned", sid)
    assert isinstance(score, float), "the session has no owner"
    return score


@pytest.mark.proves("C-30", "C-31")
def test_news_of_one_session_never_puts_off_the_renewal_of_another(valkey: ValkeyProcess) -> None:
    async def scene() -> None:
        async with parts(valkey.url, CountingRouter(), lease_seconds=6.0) as shared:
            with admitter(valkey.url, shared) as direct:
                direct.admit("noisy", "d1", [("pay", {"id": "noisy"})])
                direct.admit("quiet", "d1", [("pay", {"id": "quiet"})])
            noisy, quiet = [(await claim(shared, session))[0] for session in ("noisy", "quiet")]
            keeper = LeaseKeeper(shared, {noisy.sid: noisy, quiet.sid: quiet})
            first = lease_end(valkey, "quiet", quiet.sid)
            renewing = asyncio.create_task(keeper.run())

            def renewed() -> bool:
                # Much more often than the renewal interval of two seconds.
                keeper.news(noisy.sid)
                return lease_end(valkey, "quiet", quiet.sid) > first + 1000

            await wait_until_async(renewed, 6, "the quiet session's lease to be renewed")
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            assert not noisy.lost
            assert not quiet.lost

    asyncio.run(scene())


@pytest.mark.proves("C-32")
def test_a_renewal_that_another_owner_answers_loses_the_session(valkey: ValkeyProcess) -> None:
    async def scene() -> None:
        async with parts(valkey.url, CountingRouter(), lease_seconds=1.0) as shared:
            with admitter(valkey.url, shared) as direct:
                direct.admit("session", "d1", [("pay", {"id": 1})])
            owner, _, _ = await claim(shared, "session")
            owner.token = owner.token[:-1] + ("0" if owner.token[-1] != "0" else "1")
            renewing = asyncio.create_task(LeaseKeeper(shared, {owner.sid: owner}).run())
            await wait_until_async(lambda: owner.lost, 5, "the loss to be heard")
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    asyncio.run(scene())


@pytest.mark.proves("C-31")
def test_a_signal_connection_that_died_silently_is_replaced(
    valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hints, "SILENCE_SECONDS", 0.2)
    heard: list[int] = []
    connected: list[int] = []

    async def scene(proxy: TcpProxy) -> None:
        listener = SignalListener(
            StoreSettings(RedisConfig(url=proxy.url)),
            ready=heard.append,
            news=lambda sid: None,
            reconnected=lambda: connected.append(1),
        )
        listening = asyncio.create_task(listener.run())
        await wait_until_async(lambda: len(connected) == 1, 10, "the first subscription")
        with proxy.black_hole():
            before = proxy.accepted
            await wait_until_async(lambda: proxy.accepted > before, 10, "another connection")
        await wait_until_async(lambda: len(connected) == 2, 10, "the second subscription")
        client: Any = valkey.client()
        client.execute_command("SPUBLISH", "ml:{07}:signal", "r")
        await wait_until_async(lambda: heard == [7], 5, "a signal")
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)

    with TcpProxy(valkey.port) as proxy:
        asyncio.run(scene(proxy))


@pytest.mark.proves("C-31")
def test_a_quiet_signal_connection_is_left_alone(valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "SILENCE_SECONDS", 0.05)
    connected: list[int] = []

    async def scene(proxy: TcpProxy) -> None:
        listener = SignalListener(
            StoreSettings(RedisConfig(url=proxy.url)),
            ready=lambda shard: None,
            news=lambda sid: None,
            reconnected=lambda: connected.append(1),
        )
        listening = asyncio.create_task(listener.run())
        await wait_until_async(lambda: connected, 10, "the subscription")
        client = valkey.client()

        def pings() -> int:
            stats = client.info("commandstats").get("cmdstat_ping", {"calls": 0})
            return int(stats["calls"])

        before = pings()
        await wait_until_async(lambda: pings() > before + 5, 10, "several pings")
        assert connected == [1]
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening

    with TcpProxy(valkey.port) as proxy:
        asyncio.run(scene(proxy))


def test_complaints_are_counted_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    complaints = Complaints("sweep_failed", lambda: now[0])
    for _ in range(16):
        complaints.note("store_unavailable")
    complaints.note("store_went_back")
    now[0] = QUIET_SECONDS
    complaints.note("store_unavailable")
    lines = [line for line in capsys.readouterr().out.splitlines() if "sweep_failed" in line]
    assert len(lines) == 3
    assert "times=16" in lines[2]
