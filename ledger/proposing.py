"""From what a caller wants to an admission: policy on each call, limits, the content that a redelivery must repeat.

Front doors and host engines share this; both have checked the shape of what they were asked before (C-05, C-60).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import structlog

from ledger.admission import AdmissionLimits, Admitted, Delivery, ProposedCall, admit_delivery
from ledger.budget import ApprovedMutationBudget
from ledger.catalogs import KnownCatalogs
from ledger.config import Config
from ledger.declared import LivePolicy
from ledger.errors import InvalidRequest, Refused
from ledger.handlers import handler_input
from ledger.identity import session_hash
from ledger.ids import shard_of_session
from ledger.plugins import Plugins
from ledger.policy import Policy, Resolution
from ledger.store.call import ScriptCall
from ledger.strict_json import check_arguments
from ledger.tool_names import MCP_PREFIX, split_tool

DAY_MS = 86_400_000
POLICY_STALE = "policy_stale"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Acting:
    """Whose delivery it is. `principal` is who hands it in."""

    tenant: str
    session_id: str
    agent: str
    user: str
    principal: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for: `calls` as `(tool, arguments)`, or a `handler` with its text and input."""

    calls: Sequence[tuple[str, Mapping[str, Any]]] | None = None
    on_error: Literal["stop", "continue"] = "stop"
    logical_turn_id: str | None = None
    handler: str | None = None
    text: str | None = None
    input: Any = None


def admission_limits(config: Config, policy: Policy, tombstone_key: bytes) -> AdmissionLimits:
    """The limits of a configuration, in the units that admission takes."""
    timing = config.timing
    return AdmissionLimits(
        ceiling_ms=int(timing.request_ceiling_seconds * 1000),
        session_ms=int(timing.session_seconds * 1000),
        approval_ms=int(config.policy.approval_timeout_seconds * 1000),
        journal_ms=int(config.retention.journal_hours * 3_600_000),
        inactivity_ms=int(config.retention.session_inactivity_days * DAY_MS),
        max_live_runs=config.service.max_queued_runs,
        max_pending_approvals=config.service.max_pending_approvals,
        policy_digest=policy.digest,
        tombstone_key=tombstone_key,
        tombstone_ms=int(config.retention.tombstone_days * DAY_MS),
    )


def milliseconds(seconds: float | None) -> int | None:
    """At least one; a deadline beyond any ceiling is cut here, so that it stays an integer the store can hold."""
    return None if seconds is None else max(1, math.floor(min(seconds, 1e9) * 1000))


@dataclass(slots=True)
class Proposer:
    """What a process needs to make admissions. `host_budget` is one registered by a host engine itself (C-52)."""

    config: Config
    plugins: Plugins
    limits: AdmissionLimits
    live: LivePolicy = field(init=False)
    host_budget: ApprovedMutationBudget | None = None
    catalogs: KnownCatalogs = field(default_factory=KnownCatalogs)
    _warned: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.live = LivePolicy(self.plugins.policy)

    def shard(self, acting: Acting | Delivery) -> int:
        """The shard of a session."""
        return shard_of_session(session_hash(acting.tenant, acting.session_id), self.config.redis.shards)

    def delivery(
        self,
        acting: Acting,
        asked: Asked,
        *,
        delivery_id: str | None,
        deadline_ms: int | None = None,
        deadline_at: int | None = None,
        traceparent: str | None = None,
        coalesces: bool = False,
    ) -> Delivery:
        """The delivery, resolved by policy as it is known now.

        Raises:
            InvalidRequest: arguments that C-02 refuses; names the call.
            Refused: unknown_tool, unknown_handler.
        """
        if asked.handler is not None and asked.handler not in self.plugins.turn_handlers:
            raise Refused(f"no turn handler {asked.handler!r} is registered", code="unknown_handler")
        proposed = asked.calls or ()
        calls = [self._propose(index, *call) for index, call in enumerate(proposed)]
        pairs = [[call.tool, arguments] for call, (_, arguments) in zip(calls, proposed, strict=True)]
        return Delivery(
            tenant=acting.tenant,
            session_id=acting.session_id,
            agent=acting.agent,
            user=acting.user,
            principal=acting.principal,
            delivery_id=delivery_id,
            calls=calls,
            content=_content(asked, pairs),
            on_error=asked.on_error,
            logical_turn_id=asked.logical_turn_id,
            handler=asked.handler,
            input_json=handler_input(asked.text, asked.input) if asked.handler else None,
            deadline_ms=deadline_ms,
            deadline_at=deadline_at,
            traceparent=traceparent,
            coalesces=coalesces,
            budget=self.host_budget if asked.handler else None,
        )

    def admission(self, delivery: Delivery) -> ScriptCall[Admitted]:
        """The call that admits it; refused `policy_stale` when hosts declared more since (C-05)."""
        limits = replace(
            self.limits,
            ceiling_ms=self._ceiling_ms(delivery.calls),
            policy_digest=self.live.policy.digest,
            declared=self.live.version(self.shard(delivery)),
        )
        return admit_delivery(delivery, limits, self.config.redis.shards)

    def _propose(self, index: int, tool: str, arguments: Mapping[str, Any]) -> ProposedCall:
        try:
            text = check_arguments(arguments, max_bytes=self.config.service.max_argument_bytes)
        except InvalidRequest as error:
            raise InvalidRequest(f"calls.{index}.arguments: {error}") from None
        policy = self.live.policy
        found = policy.resolve(tool, arguments)
        if not self.knows(found.tool):
            raise Refused(f"calls.{index}.tool: no server or plugin has {found.tool}", code="unknown_tool")
        if policy.warns_about(found.tool):
            self._warn_unprotected(found.tool)
        return ProposedCall(
            tool=found.tool,
            arguments=text,
            protected=found.protected,
            level=found.level,
            rule=found.rule,
            budget_eligible=found.budget_eligible,
            allowance_ms=self._allowance(found),
            refusal=self._unlisted(index, found.tool, arguments),
        )

    def knows(self, tool: str) -> bool:
        """Whether somebody could route a canonical name."""
        if tool.startswith(MCP_PREFIX):
            return split_tool(tool, self.config.mcp.servers) is not None
        return tool in self.plugins.native_tools

    def _unlisted(self, index: int, tool: str, arguments: Mapping[str, Any]) -> Refused | None:
        """Why what its server lists now refuses a call; recorded ones are answered all the same (C-60, C-64)."""
        route = split_tool(tool, self.config.mcp.servers)
        refusal = self.catalogs.refusal(*route, arguments) if route else None
        return Refused(f"calls.{index}.{refusal}", code=refusal.code) if refusal else None

    def _allowance(self, found: Resolution) -> int | None:
        """What the host's own budget grants once a person has approved the call."""
        budget = self.host_budget
        if budget is None or found.rule is not None or not budget.selects(found.tool):
            return None
        return budget.execution_ms

    def _ceiling_ms(self, calls: Sequence[ProposedCall]) -> int:
        """A budget's own ceiling holds if a call is eligible and it is smaller (C-50)."""
        ceiling = self.limits.ceiling_ms
        own = self.live.policy.budget
        if self.host_budget is not None and any(call.allowance_ms for call in calls):
            ceiling = min(ceiling, self.host_budget.ceiling_ms)
        elif own is not None and any(call.budget_eligible for call in calls):
            ceiling = min(ceiling, own.ceiling_ms)
        return ceiling

    def _warn_unprotected(self, tool: str) -> None:
        """The one warning of C-06 for a tool; names it and what would protect it, never arguments."""
        if tool not in self._warned:
            self._warned.add(tool)
            log.warning("unprotected_mcp_tool", tool=tool, protect_with="register_mutation_tools")


def _content(asked: Asked, pairs: Sequence[Sequence[Any]]) -> dict[str, Any]:
    return {
        "calls": list(pairs),
        "handler": asked.handler,
        "text": asked.text,
        "input": asked.input,
        "on_error": asked.on_error,
        "logical_turn_id": asked.logical_turn_id,
    }
