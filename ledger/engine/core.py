"""The engine inside its event loop: every operation as a coroutine."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import structlog

from ledger.admission import Admitted, Delivery
from ledger.catalogs import LIST_SECONDS
from ledger.declared import declare_tools
from ledger.engine.adapter import Adapter
from ledger.engine.deps import Deps
from ledger.engine.messages import ContinuationUnavailable, IncomingMessage, MessageLike, TurnResult
from ledger.engine.turns import Following, admit
from ledger.errors import InvalidRequest, LedgerError, Refused
from ledger.history import read_delivery, read_turn
from ledger.host_view import call_object, turn_artifact, turn_state
from ledger.identity import (
    canonical_tool,
    check_delivery_id,
    check_logical_turn_id,
    check_session_id,
    check_tool_name,
)
from ledger.ids import new_id, shard_of_id
from ledger.proposing import Acting, Asked
from ledger.readbacks import ReadbackHandler
from ledger.readbacks.asking import Asker, readback_settings
from ledger.reconciliation import Target, attach_metadata, reconcile_mutation
from ledger.records import Run, Turn
from ledger.runs import cancel_run
from ledger.store import ScriptCall
from ledger.strict_json import check_arguments
from ledger.tasks import end_tasks
from ledger.tombstone import pin_key

CALLS_MAX = 32
log = structlog.get_logger(__name__)

WAIT_MARGIN_SECONDS = 60.0
"""How long after the longest ceiling a handler of a message still waits for a run that nobody ends."""
_NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,128}")
_MUTATION_ID = re.compile(r"[0-9a-f]{64}")


class EngineCore:
    """Belongs to one event loop. `start` before use."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._own_tools: frozenset[str] = frozenset()
        self._asking: asyncio.Task[None] | None = None
        self._listing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connects. Raises what the store raises, and Refused (tombstone_key_changed)."""
        await self._deps.store.open()
        await self._deps.store.run(pin_key(self._deps.proposer.limits.tombstone_key))
        self._deps.hints.start()
        if self._deps.config.mcp.servers:
            self._listing = asyncio.create_task(self._read_catalogs(), name="catalogs")

    async def close(self) -> None:
        """Disconnects."""
        await end_tasks([task for task in (self._asking, self._listing) if task is not None])
        await self._deps.hints.close()
        await self._deps.store.close()

    async def _read_catalogs(self) -> None:
        """Follows what MCP servers list, so that calls which cannot work are refused at once (C-64)."""
        known = self._deps.proposer.catalogs
        while True:
            try:
                known.adopt(await self._deps.store.run(known.request()))
            except LedgerError as error:
                log.debug("catalogs_not_read", code=error.code)
            await asyncio.sleep(LIST_SECONDS)

    async def run(self, call: ScriptCall[Any]) -> Any:
        """Runs one script call."""
        return await self._deps.store.run(call)

    async def declare(self, tools: Iterable[str]) -> None:
        """See `Engine.register_mutation_tools`."""
        deps = self._deps
        names = {canonical_tool(check_tool_name(tool), deps.config.mcp.aliases) for tool in tools}
        if not names:
            return
        self._own_tools |= names
        shards = range(deps.shards)
        found = await asyncio.gather(*(deps.write(declare_tools(shard, sorted(names))) for shard in shards))
        for shard, declared in zip(shards, found, strict=True):
            deps.proposer.live.adopt(shard, declared)

    def look_up(self, readbacks: Mapping[str, ReadbackHandler]) -> None:
        """Begins to ask these, and what is added to them later; see `Engine.readback`."""
        if self._asking is None:
            deps = self._deps
            settings = readback_settings(deps.config)
            who = f"readback:{deps.principal}"
            self._asking = asyncio.create_task(
                Asker(deps.store, settings, readbacks, tenant=deps.tenant, who=who).run()
            )

    async def handle(self, message: IncomingMessage, adapter: Adapter | None, wait: float | None) -> TurnResult:
        """See `Engine.handle_with_results`."""
        adapter = adapter or Adapter()
        given = message.delivery_id or message.message_id
        if given is None:
            # On the message before anything is sent, so that the host can retry with it whatever happens (C-26).
            message.delivery_id = new_id(0)
        delivery_id = check_delivery_id(given or message.delivery_id)
        build = partial(self._delivery, message, delivery_id, await self._deadline(message, adapter), given is None)
        try:
            admitted = await admit(self._deps, build, self._own_tools)
            if admitted.how != "new" and admitted.run.delivery_id is not None:
                # An identical live one took it in (C-61).
                delivery_id = admitted.run.delivery_id
                if given is None:
                    message.delivery_id = delivery_id
        except LedgerError as error:
            error.extra["delivery_id"] = delivery_id
            if error.code == ContinuationUnavailable.code:
                raise ContinuationUnavailable(str(error), delivery_id=delivery_id) from None
            raise
        if wait is None:
            wait = self._deps.proposer.limits.ceiling_ms / 1000 + WAIT_MARGIN_SECONDS
        run = await Following(self._deps, adapter, admitted).to_end(wait)
        return await self._result(message, admitted, run, delivery_id)

    async def resume(self, message: IncomingMessage, logical_turn_id: str) -> None:
        """See `Engine.resume_logical_turn`."""
        turn = await self._read_turn(message, check_logical_turn_id(logical_turn_id))
        if turn is None:
            raise ContinuationUnavailable("no such logical turn of this session, agent and user")
        message.logical_turn_id = turn.logical_turn_id

    async def state(self, message: MessageLike) -> dict[str, Any] | None:
        """See `Engine.mutation_state`."""
        turn = await self._turn(message)
        return None if turn is None else turn_state(turn)

    async def artifact(self, message: MessageLike) -> dict[str, Any]:
        """See `Engine.turn_artifact`."""
        turn = await self._turn(message)
        return {} if turn is None else turn_artifact(turn.logical_turn_id, turn.entries)

    async def attach(self, message: MessageLike, mutation_id: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """See `Engine.attach_mutation_metadata`."""
        acting, deps = self._acting(message), self._deps
        target = Target(
            tenant=acting.tenant,
            session_id=acting.session_id,
            agent=acting.agent,
            user=acting.user,
            mutation_id=_checked_mutation(mutation_id),
            delivery_id=_delivery_id(message),
            logical_turn_id=message.logical_turn_id,
        )
        record, _ = await deps.write(attach_metadata(target, dict(metadata), deps.shards))
        return record

    async def reconcile(
        self, message: MessageLike, mutation_id: str, *, completed: bool, dispatcher_stopped: bool
    ) -> dict[str, Any]:
        """See `Engine.reconcile_mutation`."""
        deps = self._deps
        turn = await self._turn(message)
        if turn is None:
            raise Refused("this delivery has no ledger", code="not_found")
        call = reconcile_mutation(
            deps.tenant,
            message.session_id,
            turn.logical_turn_id,
            _checked_mutation(mutation_id),
            completed=completed is True,
            by=deps.principal,
            shards=deps.shards,
            dispatcher_stopped=dispatcher_stopped is True,
        )
        return (await deps.write(call)).record

    async def cancel(self, run_id: str) -> str:
        """See `Engine.cancel_run`."""
        deps = self._deps
        shard = shard_of_id(run_id, deps.shards)
        if shard is None:
            return "unknown"
        reply = await deps.write(cancel_run(shard, run_id, deps.tenant))
        await deps.wake(reply.wake)
        return reply.answer

    def _delivery(self, message: IncomingMessage, delivery_id: str, deadline_at: int | None, made: bool) -> Delivery:
        _check_shape(message, self._deps.config.service.max_body_bytes)
        asked = Asked(
            calls=message.calls,
            on_error=message.on_error,
            logical_turn_id=message.logical_turn_id,
            handler=message.handler,
            text=message.text,
            input=message.input,
        )
        return self._deps.proposer.delivery(
            self._acting(message),
            asked,
            delivery_id=delivery_id,
            deadline_at=deadline_at,
            traceparent=message.traceparent,
            coalesces=made,
        )

    def _acting(self, message: MessageLike) -> Acting:
        deps = self._deps
        return Acting(
            tenant=deps.tenant,
            session_id=check_session_id(message.session_id),
            agent=_checked_name("agent", message.agent or deps.agent),
            user=_checked_name("user", message.user or deps.principal),
            principal=deps.principal,
        )

    async def _deadline(self, message: IncomingMessage, adapter: Adapter) -> int | None:
        """The host's own deadline as store time, rounded against the host; the earlier one of two wins (C-50)."""
        given = [at for at in (message.deadline_monotonic, adapter.deadline_monotonic) if at is not None]
        return (await self._deps.clock.reading()).store(min(given)) if given else None

    async def _turn(self, message: MessageLike) -> Turn | None:
        if message.logical_turn_id is not None:
            return await self._read_turn(message, message.logical_turn_id)
        delivery_id = _delivery_id(message)
        if delivery_id is None:
            return None
        who = self._acting(message)
        call = read_delivery(who.tenant, who.session_id, who.agent, who.user, delivery_id, self._deps.shards)
        session = await self._deps.store.run(call)
        return session.turns[0] if session is not None and session.turns else None

    async def _read_turn(self, message: MessageLike, logical_turn_id: str) -> Turn | None:
        who = self._acting(message)
        session = await self._deps.store.run(read_turn(who.tenant, who.session_id, logical_turn_id, self._deps.shards))
        for turn in session.turns if session is not None else ():
            if (turn.agent, turn.user) == (who.agent, who.user):
                return turn
        return None

    async def _result(self, message: IncomingMessage, admitted: Admitted, run: Run, delivery_id: str) -> TurnResult:
        return TurnResult(
            status=run.status.value if run.status.ended else "still_running",
            run_status=run.status.value,
            run_id=run.run_id,
            session_id=run.session_id,
            delivery=run.delivery,
            delivery_id=delivery_id,
            logical_turn_id=run.logical_turn_id,
            code=run.end_code,
            narration=run.narration,
            calls=tuple(call_object(call) for call in run.calls),
            turn_artifact=await self._artifact_of(message, admitted, run),
        )

    async def _artifact_of(self, message: IncomingMessage, admitted: Admitted, run: Run) -> dict[str, Any]:
        """A turn that this run made holds what the run holds; any other one is read."""
        if run.logical_turn_id is None:
            return {}
        if admitted.how == "new" and message.logical_turn_id is None:
            entries = {call.entry.mutation_id: call.entry for call in run.calls if call.entry is not None}
            return turn_artifact(run.logical_turn_id, sorted(entries.values(), key=lambda entry: entry.order))
        turn = await self._read_turn(message, run.logical_turn_id)
        return turn_artifact(run.logical_turn_id, turn.entries) if turn is not None else {}


def _check_shape(message: IncomingMessage, max_input_bytes: int) -> None:
    calls = message.calls
    if (calls is None) == (message.handler is None):
        raise InvalidRequest("give exactly one of calls and handler")
    if calls is not None and not 1 <= len(calls) <= CALLS_MAX:
        raise InvalidRequest(f"calls: 1 to {CALLS_MAX}")
    for tool, _ in calls or ():
        check_tool_name(tool)
    if message.handler is None and not (message.text is None and message.input is None):
        raise InvalidRequest("text and input belong to handler")
    if message.handler is not None:
        _check_input(message, max_input_bytes)
    if message.on_error not in ("stop", "continue"):
        raise InvalidRequest("on_error must be stop or continue")
    if message.logical_turn_id is not None:
        check_logical_turn_id(message.logical_turn_id)


def _check_input(message: IncomingMessage, max_bytes: int) -> None:
    if not isinstance(message.text, str | None):
        raise InvalidRequest("text must be a string")
    try:
        check_arguments({"text": message.text, "input": message.input}, max_bytes=max_bytes)
    except InvalidRequest:
        raise InvalidRequest("text and input must be JSON without loss, and fit into a request") from None


def _checked_name(field: str, value: object) -> str:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise InvalidRequest(f"{field} must be 1-128 characters without control characters")


def _checked_mutation(value: object) -> str:
    if isinstance(value, str) and _MUTATION_ID.fullmatch(value):
        return value
    raise InvalidRequest("a mutation id is 64 hex digits")


def _delivery_id(message: MessageLike) -> str | None:
    return message.delivery_id or getattr(message, "message_id", None)
