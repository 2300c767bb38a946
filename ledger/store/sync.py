"""The store for threads and greenlets: one pinned connection per call, script and WAITAOF in one send."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import structlog
from redis.exceptions import AskError, ResponseError

from ledger.durability import Report, worst
from ledger.errors import Refused, StoreError, StoreUnavailable, StoreWentBack
from ledger.store.call import ScriptCall
from ledger.store.confirming import ReadConfirms, confirm_shard, not_confirmed
from ledger.store.connections import Command, Connections, Exchange
from ledger.store.dialing import place
from ledger.store.group import NOT_ASKED, Group, Sent
from ledger.store.opening import adopt_all, adopt_first, init_command
from ledger.store.placement import Kind, Node, Placement
from ledger.store.settings import StoreSettings
from ledger.store.trust import check_commands, refuse_commands, require_kept
from ledger.store.view import LedgerView
from ledger.store.wire import StoreChanged, check_aof, translate

T = TypeVar("T")
log = structlog.get_logger(__name__)
ADOPTIONS_MAX = 3
"""A store is accepted by a person; one that changes its id again and again is not usable."""
MOVES_MAX = 3
_SHARD = re.compile(rb"^ml:\{([0-9a-f]{2})\}:")


class SyncStore:
    """Runs script calls from any thread or greenlet, each on the server that holds its shard.

    Each call, or each group of calls, takes a connection of its own for the scripts and the WAITAOF after them, so that
    the confirmation covers these writes (C-20).
    """

    def __init__(self, settings: StoreSettings, *, groups: int = 0) -> None:
        """With `groups`, calls gather while that many groups of them are on their way to a server."""
        self.settings = settings
        self._most = groups
        self._groups: dict[Node | None, Group] = {}
        self.view = LedgerView(settings.redis.shards)
        self._kind = settings.address.kind
        self._placement: Placement | None = None
        self._servers: dict[Node | None, Connections] = {}
        self._confirms: dict[Node | None, ReadConfirms] = {}
        self._opened = False
        self._refused = b""
        self._lock = threading.Lock()
        self._placing = threading.Lock()

    @property
    def report(self) -> Report | None:
        """What the servers' settings were found to promise, the worst of them; None before the first look."""
        return worst(server.report for server in list(self._servers.values()))

    def open(self) -> None:
        """Verifies the store's settings and agrees on its id; safe to call again.

        Raises:
            StoreUnsafe: the settings cannot keep the promise (C-21).
            StoreUnavailable: the store cannot be reached now.
            StoreWentBack, ConfigError: see `ledger.store.opening`.
        """
        self._everywhere(Connections.meet)
        with self._lock:
            if not self._opened:
                adopt_first(self.view, self.command([init_command(self.view, 0)])[0], self.settings.redis)
                shards = range(self.settings.redis.shards)
                adopt_all(self.view, self.command([init_command(self.view, shard) for shard in shards]))
                self._opened = True

    def close(self) -> None:
        """Closes all idle connections."""
        for server in list(self._servers.values()):
            server.close()

    def run(self, call: ScriptCall[T]) -> T:
        """Runs one call and, if it wrote, waits until the write is confirmed on disk.

        On a store with replicas also what it only read, and what refused it, is confirmed before it is told (C-25).

        Raises:
            Refused: a rule said no; nothing changed.
            Unconfirmed: sent, but not confirmed in time; the same call may be sent again (C-22).
            StoreUnavailable: not sent, or refused by the server.
            StoreWentBack: see C-27.
        """
        if not self._opened:
            self.open()
        for _ in range(ADOPTIONS_MAX):
            known = self.view.ids[call.shard]
            try:
                return self._routed(lambda: self._once(call))
            except StoreChanged as changed:
                self.view.adopt(call.shard, changed.store_id)
            except StoreWentBack as found:
                self._refuse_everywhere(found.store_id or known)
                raise
        raise StoreUnavailable("the store keeps changing its id", sent=False)

    def command(self, commands: Sequence[Command]) -> list[Any]:
        """Runs plain commands, all replies in order; for set-up and tools, not for ledger writes.

        On a cluster each goes to the server of the first shard that its words name, and one that names none follows
        the command before it, on the same connection.

        Raises:
            StoreUnavailable: the connection failed.
            LedgerError: the server refused a command.
        """
        return self._routed(lambda: self._commands(commands))

    def recheck(self) -> Report:
        """Looks at the settings of every server again; called every 10 s and by `/readyz` (C-21).

        Raises:
            StoreUnavailable, StoreUnsafe: the promise cannot be kept now.
        """
        self._everywhere(Connections.recheck)
        report = self.report
        if report is None:
            raise StoreUnavailable("the store was not checked yet", sent=False)
        return report

    def keep_watch(self) -> None:
        """Notices a server that was replaced or started again while nobody asked for anything (C-27).

        Sends nothing while its connection is alive. Raises StoreUnavailable, StoreUnsafe, StoreWentBack.
        """
        try:
            self._everywhere(Connections.meet)
        except StoreWentBack as found:
            if found.store_id is not None:
                self._refuse_everywhere(found.store_id)
            raise

    def each_server(self, *command: str) -> None:
        """Runs one plain command on every server that holds shards; raises as `command`."""

        def run(server: Connections) -> None:
            _raise_first(server.use(lambda exchange: exchange([command])))

        self._everywhere(run)

    def _everywhere(self, work: Callable[[Connections], Any]) -> None:
        def all_of_them() -> None:
            for node in self._placed().shards_by_node(self.settings.redis.shards):
                work(self._server(node))

        self._routed(all_of_them)

    def _routed(self, work: Callable[[], T]) -> T:
        """Runs `work`, again if a server said that the shard lives elsewhere: then it did nothing (C-22)."""
        for _ in range(MOVES_MAX):
            try:
                return work()
            except AskError:
                self._placement = None
            except StoreWentBack:
                raise
            except StoreError:
                # Perhaps another server has taken over.
                if self._kind is not Kind.SERVER:
                    self._placement = None
                raise
        raise StoreUnavailable("the shard is moving to another server", sent=False)

    def _placed(self) -> Placement:
        found = self._placement
        if found is None:
            with self._placing:
                found = self._placement
                if found is None:
                    known = [node for node in self._servers if node is not None]
                    found = self._placement = place(self.settings, known)
        return found

    def _server(self, node: Node | None) -> Connections:
        found = self._servers.get(node)
        if found is None:
            met = partial(self._met, node)
            found = self._servers.setdefault(node, Connections(self.settings, node, met))
        return found

    def _met(self, node: Node | None, exchange: Exchange) -> None:
        """Another life of a server: what this process knows to be confirmed must still be there (C-27)."""
        if self._opened:
            looks = check_commands(self.view, self._shards_of(node))
            require_kept(looks, exchange(looks))

    def _shards_of(self, node: Node | None) -> list[int]:
        return self._placed().shards_by_node(self.settings.redis.shards).get(node, [])

    def _refuse_everywhere(self, store_id: bytes) -> None:
        """One shard lacks confirmed writes: no other is to be trusted either, by any process. Done once a store id."""
        if store_id == self._refused:
            return
        self._refused = store_id
        for node, server in list(self._servers.items()):
            try:
                server.tell(refuse_commands(self.view, self._shards_of(node), store_id))
            except StoreUnavailable as error:
                log.warning("store_not_refused", code=error.code)

    def _once(self, call: ScriptCall[T]) -> T:
        server = self._server(self._placed().of_shard(call.shard))
        # One time for all of it: a slow store must not be waited for once a round trip.
        until = time.monotonic() + self.settings.answer_seconds
        server.recheck_if_due(until)
        confirms = call.told and self.settings.confirms_reads(server.report)
        life = server.life
        try:
            reply = self._exchanged(server, call, until)
        except Refused:
            if confirms:
                self._confirm_read(server, life, call.shard, until)
            raise
        if confirms and reply[0] < 0:
            self._confirm_read(server, life, call.shard, until)
        return call.decode(reply)

    def _exchanged(self, server: Connections, call: ScriptCall[Any], until: float) -> list[Any]:
        """The reply to a call, confirmed on disk if it wrote."""
        sent = self._sent(server, call, until)
        _raise_first([sent.reply])
        reply: list[Any] = sent.reply
        n = reply[0]
        if n >= 0:
            if sent.aof is not NOT_ASKED:
                unconfirmed = check_aof(sent.aof, self.settings.redis.aof_local, self.settings.redis.aof_replicas)
                if unconfirmed is not None:
                    raise unconfirmed
            self.view.confirmed(call.shard, n, sent.store_id)
        return reply

    def _sent(self, server: Connections, call: ScriptCall[Any], until: float) -> Sent:
        group = self._groups.get(server.node)
        if group is None:
            group = Group(server, self.view, lambda: self.settings, self._most)
            group = self._groups.setdefault(server.node, group)
        return group.run(call, until) if self._most else group.alone(call, until)

    def _confirm_read(self, server: Connections, life: str, shard: int, until: float) -> None:
        """Waits until the replicas hold what was read in this life of the server; another one says nothing of it."""
        confirms = self._confirms.get(server.node)
        if confirms is None:
            made = ReadConfirms(lambda shard, until: self._send_confirm(server, shard, until))
            confirms = self._confirms.setdefault(server.node, made)
        confirms.wait(shard, until)
        if server.life != life:
            raise not_confirmed()

    def _send_confirm(self, server: Connections, shard: int, until: float) -> None:
        self._exchanged(server, confirm_shard(shard), until)

    def _commands(self, commands: Sequence[Command]) -> list[Any]:
        by_node: dict[Node | None, list[tuple[int, Command]]] = {}
        node = self._placed().of_shard(0)
        for position, command in enumerate(commands):
            shard = _shard_in(command)
            node = node if shard is None else self._placed().of_shard(shard)
            by_node.setdefault(node, []).append((position, command))
        replies: dict[int, Any] = {}
        for owner, numbered in by_node.items():
            mine = [command for _, command in numbered]
            found = self._server(owner).use(lambda exchange, mine=mine: exchange(mine))  # type: ignore[misc]  # mine
            replies.update(zip((position for position, _ in numbered), found, strict=True))
        ordered = [replies[position] for position in range(len(commands))]
        _raise_first(ordered)
        return ordered


def _raise_first(replies: Sequence[Any]) -> None:
    """Raises the first error among the replies; that of a shard that lives elsewhere as it is."""
    for reply in replies:
        if isinstance(reply, AskError):
            raise reply from None
        if isinstance(reply, ResponseError):
            raise translate(reply) from None


def _shard_in(command: Command) -> int | None:
    for word in command:
        match = _SHARD.match(word if isinstance(word, bytes) else str(word).encode())
        if match is not None:
            return int(match.group(1), 16)
    return None
