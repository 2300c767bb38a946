"""The RQ waker: what it puts into the store, and that it never stands in anybody's way."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from ledger.adapters.rq_wake import FAILURE_SECONDS, JOB, RqWaker
from tests.support.valkey import free_port


def _jobs(client: Any) -> list[dict[bytes, bytes]]:
    names = client.lrange("{rq}:queue:drain", 0, -1)
    return [client.hgetall(b"{rq}:job:" + name) for name in names]


def test_a_wake_up_is_one_job_of_ids_only_on_one_slot(store_url: str) -> None:
    waker = RqWaker(store_url)
    waker.wake()
    waker.wake()
    waker.pass_on()
    with redis.Redis.from_url(store_url) as client:
        assert all(key.startswith(b"{rq}:") for key in client.keys("*"))
        jobs = _jobs(client)
        assert len(jobs) == 3
        called = [json.loads(zlib.decompress(job[b"data"])) for job in jobs]
        assert [(name, arguments) for name, _, arguments, _ in called] == [
            (JOB, [False]),
            (JOB, [False]),
            (JOB, [True]),
        ]
        for job in jobs:
            assert job[b"result_ttl"] == b"0"
            assert job[b"failure_ttl"] == str(FAILURE_SECONDS).encode()
            assert b"retries_left" not in job


@pytest.mark.proves("C-26")
def test_an_absent_store_is_logged_and_never_raised() -> None:
    with capture_logs() as logs:
        RqWaker(f"redis://:s3cret@127.0.0.1:{free_port()}/0").wake()
    assert [line["event"] for line in logs] == ["wake_not_enqueued"]
    assert "s3cret" not in str(logs)
