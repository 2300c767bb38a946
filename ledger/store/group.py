"""Group commit for threads and greenlets: calls that come while others are on their way share a send and a WAITAOF."""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import ResponseError

from ledger.errors import LedgerError, StoreUnavailable, Unconfirmed
from ledger.store.call import ScriptCall
from ledger.store.connections import Command, Connections, Exchange
from ledger.store.settings import StoreSettings
from ledger.store.view import LedgerView
from ledger.store.wire import is_known_already, is_missing_script

LOADS_MAX = 5
"""A server may lose its scripts again before the call comes."""
MAX_GROUP = 64
GROUPS = 8
"""Enough that the server works on one while the answers of others are read; with more, each would be smaller."""


NOT_ASKED: Any = object()


class Sent:
    """A call, and once `answered` what came of it: its reply, what confirms it (or `NOT_ASKED`), or an error."""

    __slots__ = ("answered", "aof", "call", "error", "leads", "reply", "roused", "store_id", "turn", "until")

    def __init__(self, call: ScriptCall[Any], until: float) -> None:
        self.call = call
        self.until = until
        self.reply: Any = None
        self.aof: Any = NOT_ASKED
        self.store_id = b""
        self.error: Exception | None = None
        self.answered = False
        self.leads = False
        self.roused = False
        # A lock, because an event costs several times as much; held until there is something to wake for.
        self.turn = threading.Lock()
        self.turn.acquire()

    def rouse(self) -> None:
        """Lets its caller look; under the group's lock."""
        if not self.roused:
            self.roused = True
            self.turn.release()


class Group:
    """Calls to one server. At most `most` groups are on their way at once, each on a connection of its own.

    Whoever finds fewer leads: it sends what waits, its own call among it, and hands out the replies. Who comes
    meanwhile waits for the next group. So a lone call is sent at once, and a busy process sends little more often than
    the server turns. No thread of its own: it works in any process that forks.
    """

    def __init__(self, server: Connections, view: LedgerView, settings: Callable[[], StoreSettings], most: int) -> None:
        self._server = server
        self._view = view
        self._settings = settings
        self._most = most
        self._lock = threading.Lock()
        self._queue: deque[Sent] = deque()
        self._leading = 0

    def run(self, call: ScriptCall[Any], until: float) -> Sent:
        """Sends the call and returns it answered, without an error of its own; `until` is of `time.monotonic`.

        Raises:
            StoreUnavailable: not sent. Unconfirmed: sent, but not answered in time. Other errors of `Connections.use`.
        """
        mine = Sent(call, until)
        try:
            with self._lock:
                self._queue.append(mine)
                if self._leading < self._most:
                    self._leading += 1
                    mine.leads = True
            self._until_answered(mine)
        except BaseException:
            self._leave(mine)
            raise
        if mine.error is not None:
            raise mine.error
        return mine

    def alone(self, call: ScriptCall[Any], until: float) -> Sent:
        """The same on a connection of its own, however many are on their way."""
        mine = Sent(call, until)
        self._server.use(lambda exchange: self._exchange(exchange, [mine]), until)
        return mine

    def _until_answered(self, mine: Sent) -> None:
        while True:
            if mine.leads:
                self._lead(mine)
            if mine.answered:
                return
            if mine.turn.acquire(timeout=max(0.0, mine.until - time.monotonic())):
                mine.roused = False
            else:
                self._in_time(mine)

    def _in_time(self, mine: Sent) -> None:
        """Raises unless the answer, or the lead, came in the last moment. A call that is still here is never sent."""
        with self._lock:
            if mine.answered or mine.leads:
                return
            if mine in self._queue:
                self._queue.remove(mine)
                raise StoreUnavailable("the store is too busy", sent=False)
        raise Unconfirmed("the store did not answer in time", sent=True)

    def _leave(self, mine: Sent) -> None:
        """Its caller goes away, perhaps because it was killed: what it was to do falls to another."""
        with self._lock:
            if mine in self._queue:
                self._queue.remove(mine)
            if mine.leads:
                mine.leads = False
                self._hand_on()

    def _hand_on(self) -> None:
        """The next group has a leader, if anybody waits; under the lock."""
        if self._queue:
            # Nobody's answer is to be missed because the one who reads it has less time.
            next_one = max(self._queue, key=lambda one: one.until)
            next_one.leads = True
            next_one.rouse()
        else:
            self._leading -= 1

    def _lead(self, mine: Sent) -> None:
        group: list[Sent] = []
        error: Exception | None = None
        try:
            mine.leads = False
            with self._lock:
                group += [self._queue.popleft() for _ in range(min(MAX_GROUP, len(self._queue)))]
            if group:
                until = max(one.until for one in group)
                self._server.use(lambda exchange: self._exchange(exchange, group), until)
        except Exception as failed:  # handed to every caller of the group, never swallowed
            error = failed
        except BaseException:
            error = Unconfirmed("the sender was stopped", sent=True)
            raise
        finally:
            with self._lock:
                for one in group:
                    one.error = None if error is None else _own(error)
                    one.answered = True
                    one.rouse()
                self._hand_on()

    def _exchange(self, exchange: Exchange, group: Sequence[Sent]) -> None:
        """Sends the group. Calls whose script the server lost are sent again once it has it: of those nothing ran."""
        # Asked on the connection in use: a new one may have met a server that promises something else.
        waits = self._settings().waits_aof(self._server.report)
        left = group
        for _ in range(LOADS_MAX):
            commands: list[Command] = []
            for one in left:
                sent = self._view.arguments(one.call)
                one.store_id = sent[4]  # type: ignore[assignment]  # always bytes
                commands.append(sent)
            if waits:
                commands += self._settings().aof_commands()
            replies = exchange(commands)
            for one, reply in zip(left, replies, strict=False):
                one.reply, one.aof = reply, replies[-1] if waits else NOT_ASKED
            left = [one for one in left if is_missing_script(one.reply)]
            if not left:
                return
            _load(exchange, left)


def _load(exchange: Exchange, group: Sequence[Sent]) -> None:
    scripts = {one.call.script.sha: one.call.script for one in group}
    for script, loaded in zip(scripts.values(), exchange([one.loading for one in scripts.values()]), strict=True):
        if isinstance(loaded, ResponseError) and not is_known_already(loaded):
            for one in group:
                if one.call.script.sha == script.sha:
                    one.reply = loaded


def _own(error: Exception) -> Exception:
    """The error for one more caller, who may add to it."""
    made = copy.copy(error)
    if isinstance(made, LedgerError):
        made.extra = dict(made.extra)
    return made
