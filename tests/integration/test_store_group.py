"""Group commit: calls that come while others are on their way share a send, and fail each for itself."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from ledger.admission import Admitted, admit_delivery
from ledger.config import RedisConfig
from ledger.errors import Refused, StoreUnavailable, Unconfirmed
from ledger.faultpoints import reach
from ledger.runs import cancel_run
from ledger.store import ScriptCall, StoreSettings, SyncStore, connections
from tests.support.ledger import LIMITS, SHARDS, TENANT, delivery
from tests.support.proxy import TcpProxy
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

FIRST = b"the-first-one"
HELD_SECONDS = 20.0


def admission(session: str) -> ScriptCall[Admitted]:
    return admit_delivery(delivery(session=session), LIMITS, SHARDS)


class Crowd:
    """A store whose one group is on its way and held, so that whatever comes gathers into the next one."""

    def __init__(self, valkey: ValkeyProcess, proxy: TcpProxy, pool: ThreadPoolExecutor, **redis: Any) -> None:
        self.client = valkey.client()
        self.pool = pool
        self.settings = StoreSettings(RedisConfig(url=proxy.url, shards=SHARDS, **redis), wait_seconds=HELD_SECONDS)
        self.store = SyncStore(self.settings, groups=1)
        # The server knows the script from here on.
        self.store.run(admission("warm-up"))
        self._proxy = proxy

    def hold(self) -> Future[Admitted]:
        """Sends the first call; its reply does not come until `release`."""
        self._held = self._proxy.hold_reply(FIRST)
        first = self.pool.submit(self.store.run, admission(FIRST.decode()))
        assert self._held.arrived.wait(10)
        return first

    def release(self) -> None:
        self._held.release()

    def slow_down(self, seconds: float) -> None:
        """Everything takes so much longer on its way."""
        self._proxy.delay(seconds)

    def gather(self, *calls: ScriptCall[Any]) -> list[Future[Any]]:
        """One after the other into the queue."""
        futures = []
        for count, call in enumerate(calls, start=1):
            futures.append(self.pool.submit(self.store.run, call))
            wait_until(lambda count=count: self.queued == count, 10, "the call to wait")  # type: ignore[misc]  # bound
        return futures

    @property
    def queued(self) -> int:
        return sum(len(group._queue) for group in self.store._groups.values())

    def calls(self, command: str) -> int:
        """How often the server ran a command."""
        row = self.client.info("commandstats").get(f"cmdstat_{command}")
        return int(row["calls"]) if row else 0

    def runs(self) -> int:
        return sum(1 for key in self.client.scan_iter("ml:*:run:*") if not key.endswith(b":journal"))


@contextmanager
def crowd_on(valkey: ValkeyProcess, **redis: Any) -> Iterator[Crowd]:
    with TcpProxy(valkey.port) as proxy, ThreadPoolExecutor(8) as pool:
        made = Crowd(valkey, proxy, pool, **redis)
        yield made
        made.store.close()


@pytest.fixture
def crowd(valkey: ValkeyProcess) -> Iterator[Crowd]:
    with crowd_on(valkey) as made:
        yield made


@pytest.mark.proves("C-20")
def test_calls_that_come_meanwhile_share_a_send_and_a_confirmation(crowd: Crowd) -> None:
    before = crowd.calls("waitaof")
    first = crowd.hold()
    others = crowd.gather(*(admission(f"s{n}") for n in range(5)))
    crowd.release()
    assert {one.result(10).how for one in (first, *others)} == {"new"}
    assert (crowd.runs(), crowd.calls("waitaof") - before) == (7, 2)


@pytest.mark.proves("C-20")
def test_all_of_a_group_hear_that_it_was_not_confirmed(valkey: ValkeyProcess) -> None:
    with crowd_on(valkey) as crowd:
        crowd.hold()
        others = crowd.gather(*(admission(f"s{n}") for n in range(3)))
        # From here on a replica must have it, and there is none.
        crowd.store.settings = StoreSettings(replace_redis(crowd.settings, aof_replicas=1), wait_seconds=0.2)
        crowd.release()
        for one in others:
            with pytest.raises(Unconfirmed):
                one.result(10)
        assert crowd.runs() == 5


@pytest.mark.proves("C-22")
def test_only_calls_whose_script_was_lost_are_sent_again(crowd: Crowd) -> None:
    unknown = "00" + "ab" * 16
    crowd.store.run(cancel_run(0, unknown, TENANT))
    crowd.hold()
    # Functions are forgotten, plain scripts are not.
    crowd.client.function_flush()
    before = crowd.calls("evalsha")
    kept, lost = crowd.gather(cancel_run(0, unknown, TENANT), admission("after"))
    crowd.release()
    assert (kept.result(10).answer, lost.result(10).how) == ("unknown", "new")
    assert crowd.calls("evalsha") - before == 1


@pytest.mark.proves("C-26")
def test_a_call_that_waited_too_long_is_never_sent(crowd: Crowd) -> None:
    first = crowd.hold()
    crowd.store.settings = replace(crowd.settings, wait_seconds=-1.5)
    (late,) = crowd.gather(admission("late"))
    with pytest.raises(StoreUnavailable) as caught:
        late.result(10)
    assert caught.value.extra == {"sent": False}
    crowd.store.settings = crowd.settings
    crowd.release()
    assert first.result(10).how == "new"
    assert crowd.store.run(admission("next")).how == "new"
    assert crowd.runs() == 3


@pytest.mark.proves("C-26")
def test_one_with_little_time_left_takes_none_from_the_others(crowd: Crowd) -> None:
    crowd.hold()
    (patient,) = crowd.gather(admission("patient"))
    crowd.store.settings = replace(crowd.settings, wait_seconds=1.5)
    hasty = crowd.pool.submit(crowd.store.run, admission("hasty"))
    wait_until(lambda: crowd.queued == 2, 10, "the second call to wait")
    crowd.store.settings = crowd.settings
    # 1.5 s until the first is answered, then twice as long, which is more than the second one waits in all.
    crowd.slow_down(1.5)
    crowd.release()
    assert patient.result(20).how == "new"
    with pytest.raises(Unconfirmed):
        hasty.result(10)


def test_each_hears_its_own_refusal(crowd: Crowd) -> None:
    done = crowd.store.run(admission("s"))
    crowd.hold()
    other = admit_delivery(replace(delivery(session="s"), content={"other": True}), LIMITS, SHARDS)
    refused, again, new = crowd.gather(other, admission("s"), admission("t"))
    crowd.release()
    with pytest.raises(Refused) as caught:
        refused.result(10)
    assert caught.value.code == "delivery_mismatch"
    assert (again.result(10).run_id, new.result(10).how) == (done.run_id, "new")


@pytest.mark.proves("C-26")
def test_a_sender_that_was_stopped_takes_nobody_s_turn(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd.hold()
    follower, leader = crowd.gather(admission("follows"), admission("leads"))
    stopped: list[str] = []

    def stop_once(point: str) -> None:
        if point == "store.sent" and not stopped:
            stopped.append(point)
            raise SystemExit
        reach(point)

    monkeypatch.setattr(connections, "reach", stop_once)
    crowd.release()
    with pytest.raises(SystemExit):
        leader.result(10)
    with pytest.raises(Unconfirmed):
        follower.result(10)
    assert crowd.store.run(admission("next")).how == "new"


def replace_redis(settings: StoreSettings, **changes: Any) -> RedisConfig:
    return settings.redis.model_copy(update=changes)
