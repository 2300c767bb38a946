"""Approvals through a host's adapter: they end in the same `decide` as every other channel (C-42)."""

from __future__ import annotations

import asyncio

import structlog

from ledger.approvals import Decision, decide, read_approval
from ledger.engine.adapter import Adapter
from ledger.engine.deps import Deps
from ledger.engine.human import HumanDecision, HumanRequest
from ledger.engine.telling import Teller
from ledger.errors import LedgerError, Refused
from ledger.hostcode import host_call
from ledger.ids import shard_of_id
from ledger.records import Approval, Run
from ledger.states import CallStatus

log = structlog.get_logger(__name__)

NOT_AN_APPROVER = "not_an_approver"


class Asking:
    """The open requests of one run, each put to the adapter once."""

    def __init__(self, deps: Deps, adapter: Adapter, teller: Teller) -> None:
        self._deps = deps
        self._adapter = adapter
        self._teller = teller
        self._requests: dict[str, HumanRequest] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def update(self, run: Run) -> None:
        """Asks what is new, and closes what nobody needs an answer to any more."""
        waiting = {call.approval_id for call in run.calls if call.status is CallStatus.WAITING_FOR_APPROVAL}
        for approval_id in self._tasks.keys() - waiting:
            self._close(approval_id)
        for new in waiting - self._tasks.keys():
            if new is not None:
                self._tasks[new] = asyncio.create_task(self._ask(new))

    def close(self) -> None:
        """Nobody waits for answers any more."""
        for approval_id in self._tasks:
            self._close(approval_id)

    def _close(self, approval_id: str) -> None:
        request = self._requests.get(approval_id)
        if request is not None:
            request.close()
        self._tasks[approval_id].cancel()

    async def _ask(self, approval_id: str) -> None:
        try:
            request = await self._request(approval_id)
            if request is None:
                return
            decision = await host_call(self._adapter.request_human, request)
            if decision is not None:
                # Shielded: the decision itself ends the waiting, and that must not end the decision.
                await asyncio.shield(self._decide(request, decision))
        except Exception as error:  # the request stays pending for other channels
            log.warning("adapter_did_not_decide", error=type(error).__name__, approval_id=approval_id)

    async def _request(self, approval_id: str) -> HumanRequest | None:
        deps = self._deps
        shard = shard_of_id(approval_id, deps.shards) or 0
        reply = await deps.store.run(read_approval(shard, deps.tenant, approval_id))
        await deps.wake(reply.wake)
        found = next((approval for approval in reply.approvals if approval.state == "pending"), None)
        if found is None or found.arguments is None:
            return None
        reading = await deps.clock.reading()
        self._requests[approval_id] = request = _human_request(found, reading.monotonic(found.expires_at))
        return request

    async def _decide(self, request: HumanRequest, decision: HumanDecision) -> None:
        result = await self._result(request, decision)
        if result not in ("approved", "denied"):
            log.warning("decision_refused", code=result, approval_id=request.approval_id)
        self._teller.tell(self._adapter.on_decision, request, result)

    async def _result(self, request: HumanRequest, decision: HumanDecision) -> str:
        deps = self._deps
        if decision.by not in deps.approvers:
            return NOT_AN_APPROVER
        made = Decision(
            approval_id=request.approval_id,
            tenant=deps.tenant,
            decision="approve" if decision.approved is True else "deny",
            decided_by=decision.by,
            requester_may_approve=deps.config.policy.requester_may_approve,
            confirm=decision.confirm,
            comment=decision.comment,
        )
        try:
            decided = await deps.write(decide(made, shard_of_id(request.approval_id, deps.shards) or 0))
        except Refused as refused:
            return refused.code
        except LedgerError as error:
            return error.code
        await deps.wake(decided.wake)
        return "approval_expired" if decided.how == "expired" else decided.approval.state


def _human_request(approval: Approval, deadline: float) -> HumanRequest:
    return HumanRequest(
        approval_id=approval.approval_id,
        tool=approval.tool,
        arguments=approval.arguments or {},
        level=approval.level,
        mutation_id=approval.mutation_id,
        session_id=approval.session_id,
        run_id=approval.run_id,
        user=approval.user,
        requested_by=approval.requested_by,
        deadline_monotonic=deadline,
    )
