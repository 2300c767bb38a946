"""From a request to an admission: policy on each call, the content that a redelivery must repeat (C-05, C-60)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ledger.admission import AdmissionLimits, Delivery, ProposedCall
from ledger.config import Config
from ledger.errors import InvalidRequest, Refused
from ledger.policy import Policy
from ledger.strict_json import check_arguments
from ledger.tokens import Principal
from service.door import FrontDoor
from service.models import ProposedTool, TriggerRequest

DAY_MS = 86_400_000
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


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


def limits_for(door: FrontDoor, calls: Sequence[ProposedCall]) -> AdmissionLimits:
    """The limits of one run: a budget's own ceiling holds if a call is eligible and it is smaller (C-50)."""
    budget = door.plugins.policy.budget
    if budget is None or not any(call.budget_eligible for call in calls):
        return door.limits
    ceiling = min(door.limits.ceiling_ms, int(budget.request_ceiling_seconds * 1000))
    return replace(door.limits, ceiling_ms=ceiling)


def build_delivery(
    door: FrontDoor,
    principal: Principal,
    asked: TriggerRequest,
    *,
    acting: tuple[str, str],
    delivery_id: str | None,
    traceparent: str | None,
) -> Delivery:
    """The delivery that a request asks for. `acting` is its agent and user, `delivery_id` body's or header's.

    Raises:
        InvalidRequest: arguments that C-02 refuses; names the call.
        Refused: unknown_tool, unknown_handler.
    """
    if asked.calls is None:
        raise Refused(f"no turn handler {asked.handler!r} is registered", code="unknown_handler")
    calls = [_propose(door, index, call) for index, call in enumerate(asked.calls)]
    agent, user = acting
    return Delivery(
        tenant=principal.tenant,
        session_id=asked.session_id,
        agent=agent,
        user=user,
        principal=principal.name,
        delivery_id=delivery_id,
        calls=calls,
        content=_content(asked, calls),
        on_error=asked.on_error,
        logical_turn_id=asked.logical_turn_id,
        deadline_ms=_milliseconds(asked.deadline_seconds),
        traceparent=traceparent if traceparent and _TRACEPARENT.fullmatch(traceparent) else None,
    )


def _propose(door: FrontDoor, index: int, call: ProposedTool) -> ProposedCall:
    try:
        text = check_arguments(call.arguments, max_bytes=door.config.service.max_argument_bytes)
    except InvalidRequest as error:
        raise InvalidRequest(f"calls.{index}.arguments: {error}") from None
    policy = door.plugins.policy
    found = policy.resolve(call.tool, call.arguments)
    if not _is_known(door, found.tool):
        raise Refused(f"calls.{index}.tool: no server or plugin has {found.tool}", code="unknown_tool")
    if policy.warns_about(found.tool):
        door.warn_unprotected(found.tool)
    return ProposedCall(found.tool, text, found.protected, found.level, found.rule, found.budget_eligible)


def _is_known(door: FrontDoor, tool: str) -> bool:
    """Whether somebody could route the tool; an MCP server's own catalog is the worker's to know (C-64)."""
    if tool.startswith("mcp__"):
        rest = tool.removeprefix("mcp__")
        return any(rest.startswith(f"{server}__") for server in door.config.mcp.servers)
    return tool in door.plugins.native_tools


def _content(asked: TriggerRequest, calls: Sequence[ProposedCall]) -> dict[str, Any]:
    proposed = asked.calls or ()
    return {
        "calls": [[call.tool, one.arguments] for call, one in zip(calls, proposed, strict=True)],
        "handler": asked.handler,
        "text": asked.text,
        "input": asked.input,
        "on_error": asked.on_error,
        "logical_turn_id": asked.logical_turn_id,
    }


def _milliseconds(seconds: float | None) -> int | None:
    """At least one; a deadline beyond any ceiling is cut here, so that it stays an integer the store can hold."""
    return None if seconds is None else max(1, math.floor(min(seconds, 1e9) * 1000))
