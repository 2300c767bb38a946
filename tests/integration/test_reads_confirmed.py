"""With `aof_replicas` nothing is told that a failover could take back: what was only read is confirmed first (C-25)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ledger.admission import admit_delivery
from ledger.approvals import Decision, decide
from ledger.config import Config, RedisConfig, load
from ledger.consumer import OutcomeConsumer
from ledger.engine import Engine, IncomingMessage
from ledger.errors import Refused, StoreUnavailable
from ledger.runs import read_run
from ledger.store import StoreSettings, SyncStore
from ledger.store.confirming import ReadConfirms
from tests.integration.test_consumer import Kept
from tests.support.ledger import LIMITS, SHARDS, TENANT, delivery
from tests.support.publishing import Publisher
from tests.support.replica import frozen, replica_of
from tests.support.service import ASK, AUTO, Bench, ServeProcess, settings
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

READERS = 50
SCRIPTS = ("evalsha", "fcall")
WAIT = 0.5


@pytest.fixture
def replica(valkey: ValkeyProcess, tmp_path: Path) -> Iterator[ValkeyProcess]:
    """A replica of the test's server."""
    with replica_of(valkey, tmp_path / "replica") as made:
        yield made


@pytest.fixture
def bench(valkey: ValkeyProcess, replica: ValkeyProcess, tmp_path: Path) -> Iterator[Bench]:
    """A front door that promises one replica and does not wait long for it."""
    made = Bench(Config.model_validate(_config(valkey)), tmp_path)
    yield made
    made.close()


def _config(valkey: ValkeyProcess) -> dict[str, Any]:
    sections = settings(valkey.url, timing={"checkpoint_wait_seconds": WAIT})
    return sections | {"redis": {"url": valkey.url, "aof_replicas": 1, "shards": 1}}


def _counter(valkey: ValkeyProcess) -> int:
    found: Any = valkey.client().hget("ml:{00}:seq", "n")
    return int(found)


def _sent(valkey: ValkeyProcess, *commands: str) -> int:
    """How often the server ran one of the commands."""
    stats: Any = valkey.client().info("commandstats")
    return sum(int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"]) for command in commands)


@pytest.mark.proves("C-25", "C-26")
def test_no_route_tells_what_the_replica_does_not_hold(bench: Bench, replica: ValkeyProcess) -> None:
    done = bench.trigger((AUTO, {"n": 1}), delivery_id="d1")
    bench.finish(done)
    turn = bench.run(done["run_id"])["logical_turn_id"]
    asked = bench.trigger((ASK, {"n": 2}), delivery_id="d2")
    approval = f"/api/approvals/{asked['calls'][0]['approval_id']}"
    reads = [
        (f"/api/runs/{done['run_id']}", "host"),
        (f"/api/runs/{done['run_id']}/events", "host"),
        ("/api/runs/00" + "0" * 32, "host"),
        ("/api/approvals", "bob"),
        (approval, "bob"),
        ("/api/mutation-outcomes?session_id=s1", "host"),
        (f"/api/mutation-events?session_id=s1&logical_turn_id={turn}", "host"),
        ("/api/mutation-state?session_id=s1&delivery_id=d1", "host"),
    ]
    with frozen(replica):
        for path, who in reads:
            began = time.monotonic()
            reply = bench.get(path, as_=who)
            assert (reply.status_code, reply.get_json()["code"]) == (503, "store_unavailable"), path
            assert reply.headers["Retry-After"] == "1"
            assert WAIT * 0.9 <= time.monotonic() - began < WAIT + 3, path
    answered = [bench.get(path, as_=who).status_code for path, who in reads]
    assert answered == [200, 200, 404, 200, 200, 200, 200, 200]


@pytest.mark.proves("C-25", "C-26")
def test_a_refusal_is_confirmed_like_what_it_speaks_of(bench: Bench, replica: ValkeyProcess) -> None:
    run = bench.trigger((ASK, {"n": 1}))
    assert bench.approve(run).status_code == 200
    approval_id = run["calls"][0]["approval_id"]
    deny = decide(Decision(approval_id, "acme", "deny", "eve"), int(approval_id[:2], 16))
    with frozen(replica), pytest.raises(StoreUnavailable) as unconfirmed:
        bench.door.write(deny, {"decided": "unknown"})
    # It is known that nothing was decided, only not yet what was decided before.
    assert (unconfirmed.value.code, unconfirmed.value.extra) == ("store_unavailable", {"sent": False})
    late = bench.approve(run, decision="deny")
    assert (late.status_code, late.get_json()["code"]) == (409, "already_decided")


@pytest.mark.proves("C-25")
def test_a_run_that_ended_is_waited_for_until_the_replica_holds_its_end(bench: Bench, replica: ValkeyProcess) -> None:
    run = bench.trigger((AUTO, {"n": 1}), delivery_id="d1")
    claimed = bench.begin(run)
    with ThreadPoolExecutor(1) as threads, frozen(replica):
        waiting = threads.submit(bench.post, "/api/trigger?wait=1", _again(), "host")
        with pytest.raises(StoreUnavailable):
            bench.settle(claimed)
        assert waiting.result(20).status_code == 503
    again = bench.post("/api/trigger?wait=1", _again(), as_="host")
    assert (again.status_code, again.get_json()["status"]) == (200, "completed")


def _again() -> dict[str, Any]:
    return {"session_id": "s1", "delivery_id": "d1", "calls": [{"tool": AUTO, "arguments": {"n": 1}}]}


@pytest.fixture
def store(valkey: ValkeyProcess, replica: ValkeyProcess) -> Iterator[SyncStore]:
    """A client whose reads are confirmed."""
    made = SyncStore(StoreSettings(RedisConfig(url=valkey.url, shards=SHARDS, aof_replicas=1), wait_seconds=10))
    made.open()
    yield made
    made.close()


@pytest.mark.proves("C-25")
def test_reads_share_their_confirmation(store: SyncStore, valkey: ValkeyProcess, replica: ValkeyProcess) -> None:
    run_id = store.run(admit_delivery(delivery(), LIMITS, SHARDS)).run.run_id
    call = read_run(0, run_id, TENANT)
    # A script that has to be made known first is a write of its own.
    store.run(call)
    before = _counter(valkey)
    with ThreadPoolExecutor(READERS) as threads:
        with frozen(replica):
            first = threads.submit(store.run, call)
            wait_until(lambda: _counter(valkey) > before, 10, "the first confirmation to be sent")
            sent = _sent(valkey, *SCRIPTS)
            others = [threads.submit(store.run, call) for _ in range(READERS - 1)]
            wait_until(lambda: _sent(valkey, *SCRIPTS) == sent + READERS - 1, 10, "all others to be read")
            assert not any(one.done() for one in (first, *others))
        assert all(one.result(10).run is not None for one in (first, *others))
    # One for the first, and one for everybody who came while it was under way; who got the answer late takes a third.
    assert _counter(valkey) - before <= READERS / 10


@pytest.mark.proves("C-25")
def test_greenlets_of_a_front_door_share_it_too(valkey: ValkeyProcess, replica: ValkeyProcess, tmp_path: Path) -> None:
    process = ServeProcess(tmp_path, _config(valkey))
    try:
        body = {"session_id": "s1", "calls": [{"tool": ASK, "arguments": {}}]}
        run_id = process.request("POST", "/api/trigger", body)[1]["run_id"]
        before = _counter(valkey)
        with ThreadPoolExecutor(READERS) as threads:
            with frozen(replica):
                pending = [threads.submit(process.request, "GET", f"/api/runs/{run_id}") for _ in range(READERS)]
                wait_until(lambda: _counter(valkey) > before, 10, "a confirmation to be sent")
            found = [one.result(30)[0] for one in pending]
        assert set(found) <= {200, 503}
        assert 200 in found
        assert _counter(valkey) - before < READERS / 2
    finally:
        process.stop()


@pytest.mark.proves("C-25")
def test_without_replicas_a_read_costs_nothing_more(valkey: ValkeyProcess) -> None:
    store = SyncStore(StoreSettings(RedisConfig(url=valkey.url, shards=SHARDS)))
    store.open()
    try:
        run_id = store.run(admit_delivery(delivery(), LIMITS, SHARDS)).run.run_id
        store.run(read_run(0, run_id, TENANT))
        counter, scripts, waits = _counter(valkey), _sent(valkey, *SCRIPTS), _sent(valkey, "waitaof")
        store.run(read_run(0, run_id, TENANT))
        assert (_counter(valkey), _sent(valkey, *SCRIPTS)) == (counter, scripts + 1)
        assert _sent(valkey, "waitaof") == waits + 1
    finally:
        store.close()


@pytest.mark.proves("C-25")
def test_another_life_of_the_server_confirms_nothing_that_this_one_said(
    store: SyncStore, valkey: ValkeyProcess, replica: ValkeyProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = store.run(admit_delivery(delivery(), LIMITS, SHARDS)).run.run_id
    send = store._send_confirm
    lives: list[ValkeyProcess] = []

    def after_a_restart(*arguments: Any) -> None:
        if not lives:
            lives.append(valkey.restart())
            client: Any = replica.client()
            wait_until(lambda: client.info("replication")["master_link_status"] == "up", 30, "the replica to follow")
        send(*arguments)

    monkeypatch.setattr(store, "_send_confirm", after_a_restart)
    with pytest.raises(StoreUnavailable):
        store.run(read_run(0, run_id, TENANT))
    assert lives
    assert store.run(read_run(0, run_id, TENANT)).run is not None


class TestRounds:
    """Who shares a confirmation with whom."""

    @pytest.mark.proves("C-25")
    def test_what_was_read_later_needs_a_later_confirmation(self) -> None:
        sent: list[int] = []
        let_go = threading.Event()

        def send(shard: int, until: float) -> None:
            sent.append(shard)
            let_go.wait(10)

        confirms = ReadConfirms(send)
        with ThreadPoolExecutor(3) as threads:
            end = time.monotonic() + 10
            first = threads.submit(confirms.wait, 0, end)
            wait_until(lambda: sent == [0], 10, "the first to be sent")
            later = [threads.submit(confirms.wait, shard, end) for shard in (1, 2)]
            let_go.set()
            for one in (first, *later):
                one.result(10)
        assert sent[0] == 0
        assert len(sent) in (2, 3)

    @pytest.mark.proves("C-25", "C-26")
    @pytest.mark.parametrize(
        "error", [StoreUnavailable("away", sent=True), Refused("no", code="not_found"), RuntimeError()]
    )
    def test_a_failure_fails_everybody_who_shared_it(self, error: Exception) -> None:
        sent: list[int] = []
        let_go = threading.Event()

        def send(shard: int, until: float) -> None:
            sent.append(shard)
            let_go.wait(10)
            if len(sent) > 1:
                raise error

        confirms = ReadConfirms(send)
        end = time.monotonic() + 10
        with ThreadPoolExecutor(6) as threads:
            first = threads.submit(confirms.wait, 0, end)
            wait_until(lambda: sent == [0], 10, "the first to be sent")
            others = [threads.submit(confirms.wait, 1, end) for _ in range(4)]
            let_go.set()
            first.result(10)
            found = [one.exception(10) for one in others]
        assert None not in found
        assert sum(isinstance(one, StoreUnavailable) and not one.extra["sent"] for one in found) >= 3

    @pytest.mark.proves("C-26")
    def test_nobody_waits_beyond_his_time(self) -> None:
        let_go = threading.Event()

        def send(shard: int, until: float) -> None:
            let_go.wait(10)

        confirms = ReadConfirms(send)
        with ThreadPoolExecutor(3) as threads:
            slow = threads.submit(confirms.wait, 0, time.monotonic() + 10)
            others = [threads.submit(confirms.wait, 0, time.monotonic() + 0.2) for _ in range(2)]
            assert all(isinstance(one.exception(5), StoreUnavailable) for one in others)
            let_go.set()
            slow.result(10)


@pytest.mark.proves("C-25", "C-26")
def test_a_host_engine_tells_only_what_is_confirmed(
    valkey: ValkeyProcess, replica: ValkeyProcess, tmp_path: Path, bench: Bench
) -> None:
    done = bench.trigger((AUTO, {"n": 1}), delivery_id="d1", agent="ops", user="dana")
    bench.finish(done)
    config = load(None, overrides={**_config(valkey), "tokens": []})
    message = IncomingMessage("s1", user="dana", delivery_id="d1")
    with Engine(config, tenant="acme", principal="host", agent="ops", data_dir=tmp_path) as engine:
        with frozen(replica):
            with pytest.raises(StoreUnavailable):
                engine.mutation_state(message)
            with pytest.raises(StoreUnavailable):
                engine.sessions.mutation_outcomes("s1")
        assert engine.mutation_state(message) is not None
        assert [one["status"] for one in engine.sessions.mutation_outcomes("s1")] == ["completed"]


@pytest.fixture
def published(valkey: ValkeyProcess) -> Iterator[Callable[[], str]]:
    """Publishes an outcome and names its session; the publisher itself needs no replica."""
    publisher = Publisher(valkey.url)
    yield lambda: publisher.publish(3)
    publisher.close()


@pytest.mark.proves("C-25", "C-111")
def test_a_consumer_hands_out_only_what_is_confirmed(
    valkey: ValkeyProcess, replica: ValkeyProcess, published: Callable[[], str]
) -> None:
    published()
    found: list[str] = []
    store = StoreSettings(RedisConfig(url=valkey.url, aof_replicas=1), wait_seconds=0.5)
    with OutcomeConsumer(store, Kept().store) as consumer:
        with frozen(replica):
            session = published()
            for read in (consumer.outcomes(once=True), consumer.resync()):
                with pytest.raises(StoreUnavailable):
                    found.extend(outcome.session_id for outcome in read)
            assert found == []
        found += [outcome.session_id for outcome in consumer.outcomes(once=True)]
        assert len(found) == 2
        assert found[-1] == session
        assert len(list(consumer.resync())) == 2


@pytest.mark.proves("C-25", "C-111")
def test_an_asynchronous_one_too_given_a_url(
    valkey: ValkeyProcess, replica: ValkeyProcess, published: Callable[[], str]
) -> None:
    published()
    # Lost scripts are made known again.
    valkey.client().script_flush()

    async def read() -> list[Any]:
        async with OutcomeConsumer(valkey.url, Kept().store, aof_replicas=1) as consumer:
            return [outcome async for outcome in consumer.outcomes(once=True)]

    before = [_seq(valkey, shard) for shard in range(16)]
    assert len(asyncio.run(read())) == 1
    raised = [_seq(valkey, shard) - n for shard, n in enumerate(before)]
    assert raised == [int(shard == 3) for shard in range(16)]


def _seq(valkey: ValkeyProcess, shard: int) -> int:
    found: Any = valkey.client().hget(f"ml:{{{shard:02x}}}:seq", "n")
    return int(found or 0)
