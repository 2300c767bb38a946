"""Claiming ready sessions while switched on (architecture, steps 3 and 4)."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
from collections.abc import Callable

from ledger.errors import LedgerError, Refused
from ledger.faultpoints import reach
from ledger.handlers import HandlerOffer
from ledger.ownership import ClaimReply, claim_sessions, switch_off
from ledger.tasks import end_tasks
from workers.complaints import Complaints
from workers.following import POLICY_STALE
from workers.owner import Shared
from workers.retrying import confirmed

PROMISE_SECONDS = 1.0
"""How often the promise to look (2 s ahead in the store) is renewed while on."""
RETRY_SECONDS = 1.0
"""Between tries to take the promise back from a store that does not take it."""
SHARE_MIN, SHARE_MAX = 4, 16
"""Sessions asked for in one claim. Those of a burst are spread over the workers that are told of it."""
UNLANDED_MAX = 1000
"""Settlements that have not landed yet, above which nothing more is claimed (C-24)."""

Start = Callable[[int, float, ClaimReply], None]


class Claimer:
    """Claims for all shards while on; off, it does nothing until a drain job or the sweep switches it on.

    `start` receives each claim's sessions. `active` says how many sessions are owned now.
    """

    def __init__(self, shared: Shared, start: Start, active: Callable[[], int]) -> None:
        self._shared = shared
        self._start = start
        self._active = active
        self._on = asyncio.Event()
        self._look = asyncio.Event()
        self._hinted: set[int] = set()
        self._asked: set[int] = set()
        self._wanted = 0
        self._asks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._shards = range(shared.store.settings.redis.shards)
        self._busy_until = 0.0
        self._complaints = Complaints("claim_failed")
        self._awake_anyway = Complaints("switch_off_failed")

    @property
    def is_on(self) -> bool:
        """Whether claiming is on."""
        return self._on.is_set()

    @property
    def looking(self) -> bool:
        """Whether an answer is waited for, or a hint was not followed yet."""
        return bool(self._asks or self._hinted)

    @property
    def is_full(self) -> bool:
        """Whether no place is free, those asked for counted; a full worker promises nothing, so another is asked."""
        return not self._free()

    def switch_on(self) -> None:
        """Asked to look: by a drain job, or by the sweep."""
        self._hinted.update(self._shards)
        self._busy_until = time.monotonic() + self._shared.settings.linger
        self._on.set()
        self._look.set()

    def hint(self, shard: int) -> None:
        """A session of this shard became ready."""
        self._hinted.add(shard)
        self._look.set()

    def stop(self) -> None:
        """Ends `run` once the claim that is on its way was answered; `stopping` must be set."""
        self._on.set()
        self._look.set()

    def place_freed(self) -> None:
        """A session was given up, so there is room for another."""
        if self._on.is_set():
            self._look.set()

    async def run(self) -> None:
        """Runs until the worker stops, and to the answer of every claim that is on its way then."""
        try:
            while not self._shared.stopping.is_set():
                await self._on.wait()
                await self._while_on()
            while self._asks:
                await asyncio.wait(self._asks)
            if self._failure is not None:
                raise self._failure
        finally:
            await end_tasks(self._asks)

    async def _while_on(self) -> None:
        promise_due = 0.0
        while not self._shared.stopping.is_set():
            now = time.monotonic()
            if not self.is_full:
                promise = now >= promise_due
                if promise:
                    promise_due = now + PROMISE_SECONDS
                self._ask_around(promise=promise)
            if self._failure is not None:
                raise self._failure
            if not self._asks and time.monotonic() > self._busy_until and await self._switch_off():
                return
            if self.is_full:
                await self._pause(PROMISE_SECONDS)
            elif not self._hinted - self._asked:
                await self._pause(max(0.01, promise_due - time.monotonic()))

    async def _pause(self, seconds: float) -> None:
        self._look.clear()
        if self._shared.stopping.is_set():
            return
        try:
            async with asyncio.timeout(seconds):
                await self._look.wait()
        except TimeoutError:
            return

    def _free(self) -> int:
        """Places that neither a session nor a claim on its way has."""
        if self._shared.unlanded >= UNLANDED_MAX:
            return 0
        return max(0, self._shared.settings.concurrency - self._active() - self._wanted)

    def _ask_around(self, *, promise: bool) -> None:
        """Asks the shards that may have something, each at most once at a time; none waits for another's answer.

        `promise`: also say in every shard that this worker looks again within 2 s.
        """
        due = list(self._hinted - self._asked)
        # Every shard gets its turn to be first, or a busy one would starve the rest of a small worker.
        random.shuffle(due)
        # Few places go to few shards: a claim of several sessions costs the store little more than one of a single one.
        left, asked = self._free(), set[int]()
        share = min(SHARE_MAX, max(SHARE_MIN, -(-left // max(1, len(due)))))
        for shard in due:
            most = min(share, left)
            if not most:
                break  # the turn of the others comes with the next place
            left -= most
            asked.add(shard)
            self._ask_soon(shard, most, promise=promise)
        self._hinted -= asked
        # Where nothing is known to be ready nothing is asked for: the claim of a store that stands still and answers
        # late would begin calls that came meanwhile, too late for them.
        for shard in set(self._shards) - asked if promise else ():
            self._ask_soon(shard, 0, promise=True)

    def _ask_soon(self, shard: int, most: int, *, promise: bool) -> None:
        if most:
            self._asked.add(shard)
            self._wanted += most
        task = asyncio.create_task(self._look_at(shard, most, promise=promise))
        self._asks.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._asks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()
        self._look.set()

    async def _look_at(self, shard: int, most: int, *, promise: bool) -> None:
        reply = None
        try:
            reply = await self._ask(shard, most, promise=promise)
        finally:
            if most:
                self._asked.discard(shard)
                self._wanted -= most
        # What is left where a look brought nothing cannot be read here, and may stay for days while versions are
        # mixed: the next tick looks again.
        if reply is not None and reply.ready_left and (reply.sessions or not most):
            self._hinted.add(shard)
        if self._hinted or (reply is not None and reply.sessions):
            self._busy_until = time.monotonic() + self._shared.settings.linger

    async def _ask(self, shard: int, most: int, *, promise: bool) -> ClaimReply | None:
        """One claim; the same nonce is sent again until confirmed, so a lost reply loses no session (C-30)."""
        shared = self._shared
        asked_at = time.monotonic()
        # The claimer's pid in the token tells an operator which process owns a session; its lease, the sweeps (C-30).
        nonce = f"{os.getpid():x}x{shared.settings.lease_ms:x}x{secrets.token_hex(8)}"
        offer = shared.handlers.places.offer(most)
        reply = None
        reach("claim.asked")
        try:
            reply = await self._claimed(shard, nonce, most, offer, promise=promise)
        except LedgerError as error:
            self._complaints.note(error.code)
            return None
        finally:
            shared.handlers.places.settle(offer, [claimed.work for claimed in reply.sessions] if reply else [])
        if reply.sessions:
            reach("claim.confirmed")
            self._start(shard, asked_at, reply)
        return reply

    async def _claimed(self, shard: int, nonce: str, most: int, offer: HandlerOffer, *, promise: bool) -> ClaimReply:
        shared = self._shared
        while True:
            call = claim_sessions(shard, nonce, most, shared.following.begin(shard), awake=promise, offer=offer)
            try:
                return await confirmed(shared.store, call, within=shared.settings.lease if most else 1.0)
            except Refused as error:
                if error.code != POLICY_STALE:
                    raise
                await shared.following.catch_up(shard)

    async def _switch_off(self) -> bool:
        """Takes every shard's promise back; a session that became ready meanwhile keeps claiming on."""
        for shard in self._shards:
            try:
                off = await self._shared.store.run(switch_off(shard))
            except LedgerError as error:
                self._awake_anyway.note(error.code)
                await self._pause(RETRY_SECONDS)
                return False
            if not off:
                self.hint(shard)
                # It may be a session that cannot be read here, which would keep this worker asking without a pause.
                self._busy_until = time.monotonic() + max(self._shared.settings.linger, PROMISE_SECONDS)
                return False
        # Asked again while the promises were taken back: the sessions of that call are still waiting.
        if self._hinted:
            return False
        self._on.clear()
        return True
