"""What a wake-up looks like in RQ: a job that names no shard and holds no data (architecture, step 3)."""

from __future__ import annotations

import json

import fakeredis
import pytest
from rq import Queue
from rq.serializers import JSONSerializer

from ledger.adapters import rq_wake


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> fakeredis.FakeRedis:
    """RQ's own keys need no durability, so a fake server is enough to look at them."""
    client = fakeredis.FakeRedis()
    monkeypatch.setattr("redis.Redis.from_url", lambda *_args, **_options: client)
    return client


@pytest.mark.proves("C-31")
@pytest.mark.parametrize(("way", "passed_on"), [("wake", False), ("pass_on", True)])
def test_a_wake_up_is_a_plain_drain_job(server: fakeredis.FakeRedis, way: str, passed_on: bool) -> None:
    getattr(rq_wake.RqWaker("redis://store.test"), way)()

    (job,) = Queue(rq_wake.QUEUE, connection=server, serializer=JSONSerializer).jobs
    assert (job.func_name, list(job.args), job.kwargs) == ("workers.jobs.drain", [passed_on], {})
    assert (job.result_ttl, job.failure_ttl, job.retries_left) == (0, rq_wake.FAILURE_SECONDS, None)


def test_two_wake_ups_are_two_jobs(server: fakeredis.FakeRedis) -> None:
    waker = rq_wake.RqWaker("redis://store.test")

    waker.wake()
    waker.wake()

    queue = Queue(rq_wake.QUEUE, connection=server, serializer=JSONSerializer)
    assert queue.count == 2, "merging would lose a wake-up while a job is started"


def test_a_job_is_json_and_names_nothing_of_a_session(server: fakeredis.FakeRedis) -> None:
    rq_wake.RqWaker("redis://store.test").wake()

    (job,) = Queue(rq_wake.QUEUE, connection=server, serializer=JSONSerializer).jobs
    assert json.loads(job.data) == ["workers.jobs.drain", None, [False], {}]
