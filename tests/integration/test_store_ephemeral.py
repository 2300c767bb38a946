"""`allow_ephemeral`: a store that cannot promise is let pass and shown as unsafe, one that can is held to it (C-21)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.admission import Admitted, admit_delivery
from ledger.config import Durability, RedisConfig
from ledger.durability import Report, Verdict
from ledger.errors import Unconfirmed
from ledger.store import AsyncStore, ScriptCall, StoreSettings, SyncStore
from tests.support.ledger import LIMITS, SHARDS, delivery
from tests.support.replica import frozen, replica_of
from tests.support.scripted import preload
from tests.support.valkey import ValkeyProcess

UNSAFE = Report(Verdict.UNSAFE)
GOOD = Report(Verdict.VERIFIED)


def admission(number: int) -> ScriptCall[Admitted]:
    """A delivery to a session of its own."""
    return admit_delivery(delivery(session=f"s{number}"), LIMITS, SHARDS)


def settings(url: str, **more: Any) -> StoreSettings:
    """Anything may pass; short waits."""
    return StoreSettings(RedisConfig(url=url, shards=SHARDS, allow_ephemeral=True, **more), wait_seconds=2.0)


def waits(server: ValkeyProcess) -> int:
    """WAITAOF commands that the server has run."""
    client: Any = server.client()
    return int(client.info("commandstats").get("cmdstat_waitaof", {"calls": 0})["calls"])


@pytest.mark.proves("C-21")
@pytest.mark.parametrize(
    ("durability", "allowed", "report", "wanted"),
    [
        (Durability.VERIFIED, False, GOOD, True),
        (Durability.VERIFIED, False, UNSAFE, True),
        (Durability.VERIFIED, False, None, True),
        (Durability.VERIFIED, True, GOOD, True),
        (Durability.VERIFIED, True, UNSAFE, False),
        (Durability.VERIFIED, True, None, False),
        (Durability.ALWAYS, True, GOOD, False),
        (Durability.EXTERNAL, True, Report(Verdict.ATTESTED), False),
    ],
)
def test_what_is_shown_as_verified_is_waited_for(
    durability: Durability, allowed: bool, report: Report | None, wanted: bool
) -> None:
    found = StoreSettings(RedisConfig(durability=durability, allow_ephemeral=allowed))
    assert found.waits_aof(report) is wanted
    assert not found.confirms_reads(report)
    if durability is Durability.VERIFIED:
        replicated = StoreSettings(RedisConfig(allow_ephemeral=allowed, aof_replicas=1))
        assert replicated.confirms_reads(report) is wanted


def of_threads(server: ValkeyProcess) -> tuple[Report | None, int]:
    """The verdict, and WAITAOF commands for one write."""
    store = SyncStore(settings(server.url))
    store.open()
    before = waits(server)
    assert store.run(admission(1)).how == "new"
    found = store.report, waits(server) - before
    store.close()
    return found


def of_a_loop(server: ValkeyProcess) -> tuple[Report | None, int]:
    """The same on lanes."""

    async def main() -> tuple[Report | None, int]:
        store = AsyncStore(settings(server.url))
        await store.open()
        before = waits(server)
        assert (await store.run(admission(1))).how == "new"
        found = store.report, waits(server) - before
        await store.close()
        return found

    return asyncio.run(main())


@pytest.mark.proves("C-20", "C-21")
@pytest.mark.parametrize("look", [of_threads, of_a_loop])
@pytest.mark.parametrize(
    ("given", "verdict", "count"),
    [({}, "verified", 1), ({"appendonly": "no"}, "unsafe", 0), ({"appendfsync": "everysec"}, "unsafe", 0)],
)
def test_a_write_is_waited_for_exactly_where_the_store_can_promise(
    look: Callable[[ValkeyProcess], tuple[Report | None, int]],
    given: dict[str, str],
    verdict: str,
    count: int,
    tmp_path: Path,
) -> None:
    with ValkeyProcess(tmp_path / "v", settings=given).serving() as server:
        preload(server, "admit_delivery")
        report, waited = look(server)
        assert report is not None
        assert (report.verdict, waited) == (verdict, count)


@pytest.mark.proves("C-21")
def test_the_wait_follows_the_verdict_at_every_look(valkey: ValkeyProcess) -> None:
    store = SyncStore(settings(valkey.url))
    store.open()
    client = valkey.client()
    numbers = iter(range(10))
    for value, verdict, count in (("no", "unsafe", 0), ("yes", "verified", 1), ("no", "unsafe", 0)):
        client.config_set("appendonly", value)
        assert store.recheck().verdict == verdict
        before = waits(valkey)
        assert store.run(admission(next(numbers))).how == "new"
        assert waits(valkey) - before == count
    store.close()


@pytest.mark.proves("C-20", "C-21")
def test_a_replica_that_is_shown_as_needed_is_needed(valkey: ValkeyProcess, tmp_path: Path) -> None:
    with replica_of(valkey, tmp_path / "replica") as replica:
        store = SyncStore(settings(valkey.url, aof_replicas=1))
        store.open()
        assert store.recheck().verdict == "verified"
        call = admission(1)
        with frozen(replica), pytest.raises(Unconfirmed):
            store.run(call)
        assert store.run(call).how == "new"
        store.close()
