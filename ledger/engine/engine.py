"""`Engine`: what a host calls, from any thread; or awaits, from any event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ledger.budget import ApprovedMutationBudget, registered_budget
from ledger.config import Config, Role, with_secrets
from ledger.engine.adapter import Adapter
from ledger.engine.background import BackgroundLoop
from ledger.engine.core import EngineCore
from ledger.engine.deps import Deps
from ledger.engine.hearing import JournalHints
from ledger.engine.messages import IncomingMessage, MessageLike, TurnResult
from ledger.engine.sessions import SessionManager
from ledger.identity import canonical_tool, check_tool_name
from ledger.plugins import load_plugins
from ledger.proposing import Proposer, admission_limits
from ledger.readbacks import ReadbackHandler
from ledger.store import AsyncStore, StoreSettings
from ledger.tokens import TokenBook
from ledger.tombstone import load_key
from ledger.wake import Waker

T = TypeVar("T")


class Engine:
    """One host of one tenant. `principal` is who hands in deliveries, `agent` and user default to it.

    It runs an event loop in a background thread and connects at first use, or in `start`. Methods may be called from
    any thread; `handle_async` is for hosts with a loop of their own. Store errors are those of `ledger.errors`: a
    `StoreUnavailable` says `retryable`, and its `extra["delivery_id"]` is what to retry with.

    `approvers` may decide through adapters, beside everybody whose token has the role `approve` in the tenant (C-42).
    `data_dir` is the front door's: its `tokens.toml` counts beside the configuration's tokens, and its `tombstone.key`
    where the configuration names none. Both are read once, here.
    """

    def __init__(
        self,
        config: Config,
        *,
        tenant: str = "default",
        principal: str = "engine",
        agent: str | None = None,
        approvers: Collection[str] = (),
        data_dir: Path | None = None,
        waker: Waker | None = None,
    ) -> None:
        """Raises ConfigError: a setting, plugin or key file cannot be used."""
        config = self._config = with_secrets(config)
        self._who = (tenant, principal, agent or principal)
        self._approvers = TokenBook.load(config, data_dir).names(tenant, Role.APPROVE) | frozenset(approvers)
        plugins = load_plugins(config)
        self._proposer = Proposer(config, plugins, admission_limits(config, plugins.policy, load_key(config, data_dir)))
        self._waker = waker
        self._lock = threading.Lock()
        self._readbacks: dict[str, ReadbackHandler] = {}
        self._loop: BackgroundLoop | None = None
        self._core: EngineCore | None = None
        self.sessions = SessionManager(lambda call: self._call(self._started().run(call)), tenant, config.redis.shards)

    def start(self) -> None:
        """Connects to the store; called by itself at first use.

        Raises:
            StoreError, ConfigError: the store cannot be used.
            Refused: tombstone_key_changed.
        """
        with self._lock:
            if self._core is not None:
                return
            loop = BackgroundLoop("mutation-ledger-engine")
            try:
                core = loop.call(_made(self._deps))
                loop.call(core.start())
                if self._readbacks:
                    loop.call(_looking_up(core, self._readbacks))
            except BaseException:
                loop.close()
                raise
            self._loop, self._core = loop, core

    def close(self) -> None:
        """Disconnects. Runs go on without it: hand the same delivery in again to follow one."""
        with self._lock:
            loop, core = self._loop, self._core
            self._loop = self._core = None
        if loop is not None and core is not None:
            loop.call(core.close())
            loop.close()

    def __enter__(self) -> Engine:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Registration, during startup

    def register_mutation_tools(self, tools: Iterable[str]) -> None:
        """Declares tools protected in the store: at once, in every front door and worker (C-05).

        It changes no approval policy. Tools stay declared when this process ends. Raises InvalidRequest for a name
        that is none, and what the store raises; then it is not certain that all of them are protected everywhere.
        """
        self._call(self._started().declare(tools))

    def register_approved_mutation_budget(self, budget: ApprovedMutationBudget) -> None:
        """The allowance that deliveries of this engine get for selected tools after a human approval (C-52).

        The same again is fine. Raises ValueError for another one, also than that of configuration and plugins, and
        for a ceiling that leaves no room for wrap-up and cancellation.
        """
        with self._lock:
            self._proposer.host_budget = registered_budget(
                self._proposer.host_budget or self._proposer.live.base.budget,
                budget,
                aliases=self._config.mcp.aliases,
                wrap_up_seconds=self._config.timing.wrap_up_seconds,
            )

    def readback(self, tool: str, handler: ReadbackHandler) -> None:
        """Adds `handler(request)`, sync or async, which looks up what an unknown call of `tool` came to (C-91).

        This process asks it, for this tenant, while it lives and is connected: once the attempt can no longer be
        running, and again later while it cannot tell. Aliases are resolved. Raises ValueError if another handler is
        registered for the tool, InvalidRequest for a name that is none, and what the store raises.
        """
        name = canonical_tool(check_tool_name(tool), self._config.mcp.aliases)
        with self._lock:
            if self._readbacks.get(name, handler) is not handler:
                raise ValueError(f"another readback is registered for {name!r}")
            self._readbacks[name] = handler
        self._call(_looking_up(self._started(), self._readbacks))

    # Deliveries

    def handle(
        self, message: IncomingMessage, adapter: Adapter | None = None, *, wait_seconds: float | None = None
    ) -> Any:
        """`handle_with_results`, answering only what a turn handler narrated (None for a plan)."""
        return self.handle_with_results(message, adapter, wait_seconds=wait_seconds).narration

    def handle_with_results(
        self, message: IncomingMessage, adapter: Adapter | None = None, *, wait_seconds: float | None = None
    ) -> TurnResult:
        """Hands the delivery in and waits for its run's end, telling and asking the adapter on the way.

        The same delivery id attaches to the live run; after its end it is a redelivery (C-60). `wait_seconds` bounds
        this wait only, never the run: `still_running` is answered then.

        Raises:
            InvalidRequest: the message's shape is wrong; nothing was stored.
            Refused: unknown_tool, arguments_invalid, unknown_handler, delivery_mismatch, delivery_retired,
                delivery_limit, queue_full, approvals_full; not_found if the session was erased meanwhile.
            ContinuationUnavailable: a ValueError: the logical turn cannot be continued (C-63).
            StoreError: the delivery may have been admitted; hand it in again with the same id.
        """
        return self._call(self._started().handle(message, adapter, wait_seconds))

    async def handle_async(
        self, message: IncomingMessage, adapter: Adapter | None = None, *, wait_seconds: float | None = None
    ) -> TurnResult:
        """As `handle_with_results`, for the caller's event loop. Cancelling the wait does not cancel the run."""
        core = self._core
        if core is None:
            # Connecting blocks, the first time.
            core = await asyncio.to_thread(self._started)
        return await self._submit(core.handle(message, adapter, wait_seconds))

    def resume_logical_turn(self, message: IncomingMessage, logical_turn_id: str) -> None:
        """Makes `message` continue a logical turn of the same session, agent and user; call before `handle`.

        Raises:
            ContinuationUnavailable: a ValueError: unknown, foreign, erased, pruned or expired (C-63).
            InvalidRequest: not an id.
        """
        self._call(self._started().resume(message, logical_turn_id))

    def cancel_run(self, run_id: str) -> str:
        """Cancels a run (C-55): `cancelled` nothing was begun, `cancelling`, `ended` too late, or `unknown`."""
        return self._call(self._started().cancel(run_id))

    # The ledger, for a trusted host

    def mutation_state(self, message: MessageLike) -> dict[str, Any] | None:
        """The detached snapshot of the delivery's logical turn; None while it has no ledger (C-92)."""
        return self._call(self._started().state(message))

    def turn_artifact(self, message: MessageLike) -> dict[str, Any]:
        """The artifact section `mutation_ledger` of the delivery's logical turn as it is now; empty without one."""
        return self._call(self._started().artifact(message))

    def attach_mutation_metadata(
        self, message: MessageLike, mutation_id: str, metadata: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Attaches id, title, url, normalized_title, scope_identity; answers the outcome record (C-90).

        Works during execution, before narration and after a restart. Raises InvalidRequest for other fields, types or
        sizes, Refused (not_found).
        """
        return self._call(self._started().attach(message, mutation_id, metadata))

    def reconcile_mutation(
        self, message: MessageLike, mutation_id: str, *, completed: bool, dispatcher_stopped: bool = False
    ) -> dict[str, Any]:
        """Says what happened to an unknown outcome, after an authoritative readback; answers the record (C-91).

        `completed=False` asserts that nothing was executed; while the attempt may still run that is refused, unless
        `dispatcher_stopped` says that its dispatcher is known to be gone (recorded with the engine's principal).

        Raises:
            Refused: not_found, not_reconcilable, attempt_may_be_running.
        """
        core = self._started()
        return self._call(
            core.reconcile(message, mutation_id, completed=completed, dispatcher_stopped=dispatcher_stopped)
        )

    def _started(self) -> EngineCore:
        core = self._core
        if core is None:
            self.start()
            core = self._core
        if core is None:
            raise RuntimeError("the engine was closed")
        return core

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._running(work).call(work)

    def _submit(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        return self._running(work).submit(work)

    def _running(self, work: Coroutine[Any, Any, Any]) -> BackgroundLoop:
        loop = self._loop
        if loop is None:
            work.close()
            raise RuntimeError("the engine was closed")
        return loop

    def _deps(self) -> Deps:
        config = self._config
        tenant, principal, agent = self._who
        settings = StoreSettings(
            config.redis, wait_seconds=config.timing.checkpoint_wait_seconds, client_name="mutation-ledger-engine"
        )
        return Deps(
            config=config,
            tenant=tenant,
            principal=principal,
            agent=agent,
            approvers=self._approvers,
            proposer=self._proposer,
            store=AsyncStore(settings, confirms_reads=True),
            hints=JournalHints(settings),
            waker=self._waker or _rq_waker(settings.url),
        )


async def _made(deps: Callable[[], Deps]) -> EngineCore:
    """Made inside the loop that it belongs to."""
    return EngineCore(deps())


async def _looking_up(core: EngineCore, readbacks: Mapping[str, ReadbackHandler]) -> None:
    core.look_up(readbacks)


def _rq_waker(url: str) -> Waker:
    # Imported here: RQ reads its key prefix when it is imported, and a given waker needs no RQ.
    from ledger.adapters.rq_wake import RqWaker  # noqa: PLC0415

    return RqWaker(url)
