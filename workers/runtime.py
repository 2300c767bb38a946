"""The worker's loop: claiming, leases, sweep and dispatch in one asyncio thread for the whole process life."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from typing import Any

import structlog

from ledger.attempts import Work
from ledger.config import Config
from ledger.declared import LivePolicy
from ledger.errors import LedgerError
from ledger.faultpoints import reach
from ledger.ownership import ClaimReply, release_sessions
from ledger.plugins import TurnHandler
from ledger.policy import Policy
from ledger.readbacks import ReadbackHandler
from ledger.readbacks.asking import Asker, readback_settings
from ledger.store import AsyncStore, StoreSettings
from ledger.tasks import end_tasks
from ledger.tool_names import split_tool
from ledger.wake import Waker
from workers.beating import PolicyBeat
from workers.claiming import Claimer
from workers.following import Following
from workers.handlers.host import HandlerHost
from workers.leases import LeaseKeeper
from workers.listing import CatalogSharing
from workers.owner import SessionOwner, Shared
from workers.retention import Retention
from workers.retrying import confirmed
from workers.settings import begin_policy, worker_settings
from workers.signals import SignalListener
from workers.sweeping import Sweeper
from workers.tools.native import NativeTools
from workers.tools.router import ToolRouter

log = structlog.get_logger(__name__)

RELEASE_SECONDS = 5.0


class WorkerRuntime:
    """Owns the loop thread. `start` and the other public methods are called from the main thread."""

    def __init__(
        self,
        config: Config,
        policy: Policy,
        native: NativeTools,
        waker: Waker,
        *,
        handlers: Mapping[str, TurnHandler] | None = None,
        readbacks: Mapping[str, ReadbackHandler] | None = None,
        ended: Callable[[bool], None] = lambda failed: None,
    ) -> None:
        """`ended` is called in the loop's thread when a loop that was started has ended, by an error or not."""
        self._config = config
        self._policy = policy
        self._native = native
        self._handlers = handlers or {}
        self._readbacks = readbacks or {}
        self._ended = ended
        self._waker = waker
        self._thread = threading.Thread(target=self._main, name="worker-loop", daemon=True)
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._claimer: Claimer | None = None
        self._owners: dict[str, SessionOwner] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Starts the loop and waits until the store was verified.

        Raises:
            StoreError, ConfigError: the store cannot be used; one line.
        """
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def look(self) -> bool:
        """Switches claiming on; False when this worker is full and somebody else must look."""
        if self._loop is None or self._claimer is None:
            return False
        full = self._claimer.is_full
        self._loop.call_soon_threadsafe(self._claimer.switch_on)
        return not full

    def drain(self) -> None:
        """Begins a warm stop: nothing new is claimed, calls in flight finish, sessions are released (C-34)."""
        if self._loop is not None and self._stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)

    def join(self, timeout: float | None = None) -> bool:
        """Waits for the loop's end; True when it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def failed(self) -> bool:
        """Whether the loop ended by an error."""
        return self._failure is not None

    @property
    def alive(self) -> bool:
        """Whether the loop still runs."""
        return self._thread.is_alive()

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:  # handed to the main thread, which decides
            self._failure = error
            if self._started.is_set():
                log.error("loop_failed", error=type(error).__name__)
        finally:
            if self._started.is_set():
                self._ended(self.failed)
            self._started.set()

    async def _run(self) -> None:
        settings = worker_settings(self._config)
        wait = min(settings.checkpoint_wait, settings.settlement_wait)
        store = AsyncStore(StoreSettings(self._config.redis, wait_seconds=wait, client_name="mutation-ledger-worker"))
        await store.open()
        router = ToolRouter(self._config.mcp.servers, self._native, cancel_drain_seconds=settings.cancel_drain)
        await router.start()
        live = LivePolicy(self._policy)
        shared = Shared(
            store=store,
            router=router,
            policy=self._policy,
            following=Following(store, live, begin_policy(self._config, self._policy)),
            settings=settings,
            stopping=asyncio.Event(),
            handlers=HandlerHost(self._config, live, self._handlers, self._knows),
        )
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        leases = LeaseKeeper(shared, self._owners)
        gate = shared.handlers.gate
        gate.active = lambda: len(self._owners)
        self._claimer = Claimer(shared, lambda *claim: self._take(shared, *claim), lambda: gate.active() - gate.parked)
        gate.place_freed = self._claimer.place_freed
        signals = SignalListener(
            replace(store.settings, client_name="mutation-ledger-signals"),
            ready=self._claimer.hint,
            news=leases.news,
            reconnected=leases.ask_all,
        )
        sweeper = Sweeper(shared, self._claimer, self._waker)
        claiming = asyncio.create_task(self._claimer.run())
        parts = [leases.run(), signals.run(), sweeper.run(), Retention(shared).run(), PolicyBeat(shared).run()]
        parts += [shared.tally.run(store), CatalogSharing(store, router).run(), *self._asking(shared)]
        background = [claiming, *(asyncio.create_task(part) for part in parts)]
        self._started.set()
        try:
            await self._until_stopped(self._stop, background)
            await self._drain(shared, claiming)
        finally:
            await end_tasks(background)
            await router.close()
            shared.handlers.close()
            await store.close()

    def _asking(self, shared: Shared) -> Iterator[Coroutine[Any, Any, None]]:
        """What looks unknown outcomes up; nothing unless a readback is registered (C-91)."""
        if self._readbacks:
            settings = readback_settings(self._config)
            yield Asker(shared.store, settings, self._readbacks, stopping=shared.stopping.is_set).run()

    def _knows(self, tool: str) -> bool:
        """Whether a canonical tool name leads anywhere from here."""
        return tool in self._native or split_tool(tool, self._config.mcp.servers) is not None

    @staticmethod
    async def _until_stopped(asked: asyncio.Event, background: list[asyncio.Task[None]]) -> None:
        stop = asyncio.create_task(asked.wait())
        done, _ = await asyncio.wait([stop, *background], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        for task in done:
            if task is not stop:
                task.result()

    def _take(self, shared: Shared, shard: int, asked_at: float, reply: ClaimReply) -> None:
        """Starts the path of each session just claimed."""
        for claimed in reply.sessions:
            owner = SessionOwner(shared, shard, claimed.sid, claimed.token, lease_from=asked_at)
            self._owners[claimed.sid] = owner
            task = asyncio.create_task(self._own(owner, claimed.work, asked_at))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _own(self, owner: SessionOwner, work: Work, asked_at: float) -> None:
        try:
            await owner.run(work, asked_at)
        except LedgerError as error:
            log.error("session_path_failed", code=error.code)
        except Exception as error:  # one session must not end the worker; its lease ends and the sweep goes on with it
            log.error("session_path_failed", error=type(error).__name__)
        finally:
            if not owner.shared.stopping.is_set() or owner.given_up:
                if self._owners.get(owner.sid) is owner:
                    del self._owners[owner.sid]
                if self._claimer is not None:
                    self._claimer.place_freed()
                owner.shared.handlers.gate.freed()

    async def _drain(self, shared: Shared, claiming: asyncio.Task[None]) -> None:
        """Warm stop: let calls finish, then cancel what is left, settle, and give every session back (C-34, C-55)."""
        shared.stopping.set()
        log.info("stopping")
        if self._claimer is not None:
            self._claimer.stop()
        # What a claim on its way brings is ours already, with its first call begun.
        await asyncio.wait([claiming], timeout=shared.settings.checkpoint_wait)
        claiming.cancel()
        log.info("draining", sessions=len(self._owners), in_flight=len(self._tasks))
        for owner in self._owners.values():
            owner.stop_waiting()
        await self._wait_tasks(shared.settings.stop_drain)
        shared.past_drain = True
        if self._tasks:
            for owner in self._owners.values():
                owner.interrupt()
            await self._wait_tasks(shared.settings.cancel_drain + shared.settings.settlement_wait)
        await self._release(shared)
        log.info("drained", unfinished=len(self._tasks))

    async def _wait_tasks(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._tasks and time.monotonic() < until:
            await asyncio.wait(set(self._tasks), timeout=until - time.monotonic())

    async def _release(self, shared: Shared) -> None:
        by_shard: dict[int, list[tuple[str, str]]] = defaultdict(list)
        for owner in self._owners.values():
            by_shard[owner.shard].append((owner.sid, owner.token))
        wake = False
        for shard, rows in by_shard.items():
            reach("release.asked")
            try:
                wake |= await confirmed(shared.store, release_sessions(shard, rows), within=RELEASE_SECONDS)
                reach("release.confirmed")
            except LedgerError as error:
                log.warning("release_failed", code=error.code, shard=shard, sessions=len(rows))
        if wake:
            await asyncio.to_thread(self._waker.wake)
