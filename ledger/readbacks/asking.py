"""Asking registered readbacks: off the hot path, one question at a time for a mutation, bounded in every way (C-91)."""

from __future__ import annotations

import asyncio
import inspect
import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from ledger.config import Config
from ledger.errors import LedgerError, Refused, StoreUnavailable, StoreUnsafe
from ledger.hostcode import host_call
from ledger.outcomes import check_metadata
from ledger.readbacks.answers import ReadbackAnswer, ReadbackHandler, one_line
from ledger.readbacks.calls import Evidence, Question, claim_readbacks, note_readback
from ledger.reconciliation import reconcile_mutation
from ledger.store import AsyncStore, ScriptCall
from ledger.tasks import end_tasks

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
PLACES = 4
"""Questions of one tool at once in a process; a handler that hangs in its thread keeps its place until it returns."""
MARGIN_SECONDS = 10.0
"""How much longer than the handler's own time a question stays taken."""
_ANSWERS = ("completed", "not_executed", "unknown")


@dataclass(frozen=True, slots=True)
class ReadbackSettings:
    """Seconds unless named otherwise: what a handler is given, and how often it is asked about one attempt."""

    timeout: float
    max_tries: int
    first_pause: float
    longest_pause: float

    @property
    def hold_ms(self) -> int:
        """For how long a question belongs to who took it."""
        return int((self.timeout + MARGIN_SECONDS) * 1000)

    def pause_ms(self, tries: int) -> int:
        """How long to wait after the given number of tries; each wait is twice the one before."""
        return int(min(self.first_pause * 2 ** min(tries - 1, 30), self.longest_pause) * 1000)


def readback_settings(config: Config) -> ReadbackSettings:
    """Reads section `[readbacks]`."""
    given = config.readbacks
    return ReadbackSettings(
        given.timeout_seconds, given.max_tries, given.first_pause_seconds, given.longest_pause_seconds
    )


class Asker:
    """Asks the readbacks of one process. `tenant` None: of all tenants. `who` stands in front of a handler's name.

    `handlers` may grow while it runs. `cancel` of the task that runs `run` ends it; what was asked is asked again,
    by whoever comes first, when its time is over.
    """

    def __init__(
        self,
        store: AsyncStore,
        settings: ReadbackSettings,
        handlers: Mapping[str, ReadbackHandler],
        *,
        tenant: str | None = None,
        who: str = "readback",
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._settings = settings
        self._handlers = handlers
        self._tenant = tenant
        self._who = who
        self._stopping = stopping
        self._taken: Counter[str] = Counter()
        self._skips: dict[tuple[int, str], int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Runs until cancelled or stopping. A store that is away is asked again a second later."""
        try:
            while not self._stopping():
                for shard in range(self._store.settings.redis.shards):
                    await self._look(shard)
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await end_tasks(self._tasks)

    async def _look(self, shard: int) -> None:
        tools = [tool for tool in list(self._handlers) if self._taken[tool] < PLACES]
        if not tools:
            return
        call = claim_readbacks(
            shard,
            secrets.token_hex(8),
            tools,
            [self._skips.get((shard, tool), 0) for tool in tools],
            # One at a time for a tool that has one place left is fewer than could be, and never too many.
            most=min(PLACES - self._taken[tool] for tool in tools),
            hold_ms=self._settings.hold_ms,
            max_tries=self._settings.max_tries,
            ends_at=time.monotonic() + self._settings.timeout,
            tenant=self._tenant,
        )
        try:
            claimed = await self._store.run(call)
        except LedgerError as error:
            log.warning("readbacks_not_claimed", code=error.code, shard=shard)
            return
        self._skips.update({(shard, tool): skip for tool, skip in zip(tools, claimed.skip, strict=True)})
        for question in claimed.questions:
            self._taken[question.request.tool] += 1
            task = asyncio.create_task(self._ask(shard, question))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, shard: int, question: Question) -> None:
        asked, handler = question.request, self._handlers[question.request.tool]
        answer = await self._answer(handler, question)
        by = f"{self._who}:{_name_of(handler)}@{socket.gethostname()}/{os.getpid()}"
        evidence = Evidence(question.token, by, answer.outcome, one_line(answer.note))
        call: ScriptCall[Any]
        if answer.outcome == "unknown":
            pause = self._settings.pause_ms(asked.attempt_number)
            call = note_readback(shard, question, evidence, pause_ms=pause, max_tries=self._settings.max_tries)
        else:
            call = reconcile_mutation(
                asked.tenant,
                asked.session_id,
                asked.logical_turn_id,
                asked.mutation_id,
                completed=answer.outcome == "completed",
                by=by,
                shards=self._store.settings.redis.shards,
                answer=evidence,
                attempt=asked.attempt,
                metadata=answer.metadata,
            )
        told = await self._land(call)
        log.info("readback", tool=asked.tool, mutation_id=asked.mutation_id, answer=answer.outcome, landed=told)

    async def _answer(self, handler: ReadbackHandler, question: Question) -> ReadbackAnswer:
        """What the handler answers in time; an error, a timeout or anything else means unknown."""
        work = asyncio.create_task(host_call(handler, question.request))
        work.add_done_callback(lambda done: self._over(question.request.tool, done))
        try:
            await asyncio.wait({work}, timeout=max(0.0, question.request.deadline_monotonic - time.monotonic()))
        finally:
            if not work.done() and (inspect.iscoroutinefunction(handler) or self._stopping()):
                work.cancel()
        if not work.done() or work.cancelled():
            return ReadbackAnswer.unknown(note=f"no answer within {self._settings.timeout:g} s")
        error = work.exception()
        if error is not None:
            return ReadbackAnswer.unknown(note=f"the readback raised {type(error).__name__}")
        return _judged(work.result())

    def _over(self, tool: str, done: asyncio.Task[object]) -> None:
        self._taken[tool] -= 1
        if not done.cancelled():
            # Looked at, so that an error after the time was over is no error of the loop's.
            done.exception()

    async def _land(self, call: ScriptCall[Any]) -> str:
        """Sends the answer until it is confirmed or the question is somebody else's again."""
        until = time.monotonic() + MARGIN_SECONDS
        while True:
            try:
                await self._store.run(call)
            except Refused as error:
                return error.code
            except (StoreUnavailable, StoreUnsafe) as error:
                if time.monotonic() >= until:
                    return error.code
                await asyncio.sleep(LOOK_SECONDS)
            except LedgerError as error:
                return error.code
            else:
                return "yes"


def _judged(answer: object) -> ReadbackAnswer:
    """Only an explicit answer counts."""
    if not isinstance(answer, ReadbackAnswer) or answer.outcome not in _ANSWERS:
        return ReadbackAnswer.unknown(note=f"the readback answered {type(answer).__name__}, not a ReadbackAnswer")
    if answer.metadata is not None:
        try:
            check_metadata(answer.metadata)
        except LedgerError as error:
            return ReadbackAnswer.unknown(note=f"the readback's metadata do not fit: {error.code}")
    return answer


def _name_of(handler: ReadbackHandler) -> str:
    named = handler if inspect.isroutine(handler) else type(handler)
    return f"{named.__module__}.{named.__qualname__}"
