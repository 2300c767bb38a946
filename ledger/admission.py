"""Admitting a delivery: step 1 of the path (C-40, C-60 to C-64)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from ledger.budget import ApprovedMutationBudget
from ledger.errors import Refused
from ledger.identity import content_digest, delivery_identity, mutation_identity_of, session_hash
from ledger.ids import new_id, shard_of_session
from ledger.records import Run, ended_in, run_id_in
from ledger.store.call import ScriptCall
from ledger.store.codec import pack


@dataclass(frozen=True, slots=True)
class ProposedCall:
    """One call, resolved by policy. `tool` is canonical (C-03), `arguments` its canonical JSON text.

    `budget_eligible` leaves the allowance to the worker's budget, `allowance_ms` brings that of the host (C-52). With a
    `refusal` its delivery is not admitted, unless it was before or the ledger says what became of the call.
    """

    tool: str
    arguments: str
    protected: bool
    level: str | None = None
    rule: str | None = None
    budget_eligible: bool = False
    allowance_ms: int | None = None
    refusal: Refused | None = None


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Settings that admission needs; milliseconds and counts.

    `declared` is the version of the shard's declared tools that calls were resolved under (C-05).
    """

    ceiling_ms: int
    session_ms: int
    approval_ms: int
    journal_ms: int
    inactivity_ms: int
    max_live_runs: int
    max_pending_approvals: int
    policy_digest: str
    tombstone_key: bytes
    tombstone_ms: int = 30 * 86_400_000
    declared: int = 0


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a host hands in. `content` is what a redelivery must repeat: see `identity.content_digest`.

    A handler run names its `handler`, has no `calls`, and `input_json` from `handlers.handler_input`; `budget` is what
    its host registered for the calls it will make. `coalesces`: the `delivery_id` was made for this request, so an
    identical live one takes it in (C-61). The host's own deadline is `deadline_ms` from admission, or `deadline_at` in
    store ms.
    """

    tenant: str
    session_id: str
    agent: str
    user: str
    principal: str
    delivery_id: str | None
    calls: Sequence[ProposedCall]
    content: dict[str, Any]
    on_error: Literal["stop", "continue"] = "stop"
    logical_turn_id: str | None = None
    handler: str | None = None
    input_json: str | None = None
    deadline_ms: int | None = None
    traceparent: str | None = None
    deadline_at: int | None = None
    coalesces: bool = False
    budget: ApprovedMutationBudget | None = None


@dataclass(frozen=True)
class Admitted:
    """The run that carries the delivery: made now (`new`, `redelivered`) or found live (`attached`).

    Most callers wait for the run's end and read it then, so the run of the answer is only read when asked for.
    """

    how: Literal["new", "attached", "redelivered"]
    wake: bool
    view: Sequence[Any] = field(repr=False)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return run_id_in(self.view)

    @property
    def ended(self) -> bool:
        """Whether the run had ended already. Raises StoreError (format_too_new)."""
        return ended_in(self.view)

    @cached_property
    def run(self) -> Run:
        """The run as stored then. Raises StoreError (format_too_new)."""
        return Run.read(self.view)


def admit_delivery(delivery: Delivery, limits: AdmissionLimits, shards: int) -> ScriptCall[Admitted]:
    """Builds the admission of one delivery; sending it again admits nothing twice.

    Without a `delivery_id` one is made here, so the same call value must be re-sent, not built anew.

    Raises when run, Refused with: delivery_mismatch, delivery_retired, logical_turn_unavailable, delivery_limit,
    queue_full, approvals_full, policy_stale, and the refusals of its calls.
    """
    sid = session_hash(delivery.tenant, delivery.session_id)
    shard = shard_of_session(sid, shards)
    run_id = new_id(shard)
    delivery_id = delivery.delivery_id or run_id
    identity = bytes.fromhex(
        delivery_identity(delivery.tenant, delivery.session_id, delivery.agent, delivery.user, delivery_id)
    )
    content = bytes.fromhex(content_digest(delivery.content))
    request = {
        "tn": delivery.tenant,
        "s": delivery.session_id,
        "sid": sid,
        "a": delivery.agent,
        "u": delivery.user,
        "p": delivery.principal,
        "d": identity,
        "di": delivery_id,
        "c": content[:16],
        "run": run_id,
        "no": new_id(0)[2:26],
        "k": "handler" if delivery.handler else "plan",
        "h": delivery.handler,
        "oe": delivery.on_error,
        "ce": limits.ceiling_ms if delivery.deadline_ms is None else min(limits.ceiling_ms, delivery.deadline_ms),
        "cm": delivery.deadline_at,
        "ss": limits.session_ms,
        "ap": limits.approval_ms,
        "pd": limits.policy_digest,
        "pv": limits.declared,
        "be": _budget(delivery.budget),
        "cn": delivery.logical_turn_id,
        "calls": [_call(call, shard) for call in delivery.calls],
        "lim": {"q": limits.max_live_runs, "p": limits.max_pending_approvals},
        "tb": tombstone_member(identity, limits.tombstone_key),
        "td": limits.tombstone_ms,
        "jr": limits.journal_ms,
        "in": limits.inactivity_ms,
        "tp": delivery.traceparent,
        "tx": delivery.input_json,
    }
    if delivery.delivery_id is None or delivery.coalesces:
        request["lk"] = _coalescing_key(delivery, content)
    return ScriptCall.of("admit_delivery", shard, pack(request), decode=_decode)


def tombstone_member(identity: bytes, key: bytes) -> bytes:
    """What stays of a retired delivery: nothing that can be linked to it without the key (C-84)."""
    return hmac.new(key, identity, hashlib.sha256).digest()[:16]


def _coalescing_key(delivery: Delivery, content: bytes) -> bytes:
    """Identical requests of one agent and user coalesce; another user's never do (C-61)."""
    whose = f"{delivery.agent}\0{delivery.user}\0".encode()
    return hashlib.sha256(whose + content).digest()[:16]


_REFUSED_AS = {"unknown_tool": "ut", "arguments_invalid": "ai"}


def _call(call: ProposedCall, shard: int) -> dict[str, Any]:
    refused = {} if call.refusal is None else {_REFUSED_AS[call.refusal.code]: str(call.refusal)}
    return refused | {
        "t": call.tool,
        "m": bytes.fromhex(mutation_identity_of(call.tool, call.arguments)),
        "a": call.arguments,
        "pr": call.protected or None,
        "lv": call.level,
        "ru": call.rule,
        "ap": new_id(shard) if call.level and not call.rule else None,
        "el": call.allowance_ms or call.budget_eligible or None,
    }


def _budget(budget: ApprovedMutationBudget | None) -> dict[str, Any] | None:
    """The budget as a handler's run keeps it."""
    if budget is None:
        return None
    tools = {tool: True for tool in budget.tools if budget.selects(tool)}
    return {"t": tools, "ex": budget.execution_ms, "ce": budget.ceiling_ms}


def _decode(reply: list[Any]) -> Admitted:
    admitted = Admitted(reply[1].decode(), bool(reply[2]), reply[3])
    if admitted.how != "new":
        # A run that was there may be of a newer version: whoever hands it in must hear that, and nothing else.
        _ = admitted.run
    return admitted
