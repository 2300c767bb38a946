"""Waking workers through RQ: the only place besides `workers.rq_worker` that knows RQ."""

from __future__ import annotations

import os

os.environ.setdefault("RQ_KEY_PREFIX", "{rq}")  # one slot, so that RQ works on a cluster; must precede `import rq`

import structlog
from redis.exceptions import RedisError
from rq import Queue
from rq.serializers import JSONSerializer

from ledger.errors import StoreError
from ledger.store.dialing import redis_of_key

log = structlog.get_logger(__name__)

QUEUE = "drain"
RQ_KEY = "{rq}"
"""Whose slot all of RQ's keys are in."""
JOB = "workers.jobs.drain"
JOB_SECONDS = 30
FAILURE_SECONDS = 300


class RqWaker:
    """Enqueues `drain` jobs. A lost one costs at most 2 s, so failures are logged and never raised."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._queue: Queue | None = None

    def wake(self) -> None:
        """Asks some worker to look for ready sessions."""
        self._enqueue(passed_on=False)

    def pass_on(self) -> None:
        """Hands a drain job that met a full worker to another one, once."""
        self._enqueue(passed_on=True)

    def _enqueue(self, *, passed_on: bool) -> None:
        try:
            # No retries, no uniqueness: both would lose wake-ups while a job is started.
            self._open().enqueue(JOB, passed_on, result_ttl=0, failure_ttl=FAILURE_SECONDS, job_timeout=JOB_SECONDS)
        except (RedisError, OSError, StoreError) as error:
            # Perhaps another server holds RQ's keys by now.
            self._queue = None
            log.warning("wake_not_enqueued", error=type(error).__name__)

    def _open(self) -> Queue:
        queue = self._queue
        if queue is None:
            connection = redis_of_key(self._url, RQ_KEY, socket_timeout=2.0, socket_connect_timeout=1.0)
            queue = self._queue = Queue(QUEUE, connection=connection, serializer=JSONSerializer)
        return queue
