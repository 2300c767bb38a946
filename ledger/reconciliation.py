"""A trusted host or person says what happened (C-91), and attaches what is known of a resource (C-90)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ledger.identity import delivery_identity, session_hash
from ledger.ids import new_token, shard_of_session
from ledger.outcomes import check_metadata, public_fields
from ledger.readbacks.calls import Evidence
from ledger.store.call import ScriptCall
from ledger.store.codec import pack


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The published record after reconciliation and its revision."""

    how: Literal["reconciled", "repeated"]
    record: dict[str, Any]
    revision: int


def reconcile_mutation(
    tenant: str,
    session_id: str,
    logical_turn_id: str,
    mutation_id: str,
    *,
    completed: bool,
    by: str,
    shards: int,
    dispatcher_stopped: bool = False,
    answer: Evidence | None = None,
    attempt: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> ScriptCall[Reconciled]:
    """Reconciles an unknown outcome; `completed` False restores `approved`, published `not_executed` (C-91).

    `answer` is that of a readback, about `attempt` and no other; it is noted in the same step, with the `metadata`
    that it found. The call has a token of its own: sent again, it says nothing of an attempt begun meanwhile (C-22).

    Raises InvalidRequest for metadata that do not fit; when run, Refused with: not_found, not_reconcilable,
    attempt_may_be_running, and of a readback's answer that nobody waits for any more readback_over.
    """
    sid = session_hash(tenant, session_id)
    request = {
        "sid": sid,
        "tn": tenant,
        "t": logical_turn_id,
        "m": bytes.fromhex(mutation_id),
        "cp": completed or None,
        "ds": dispatcher_stopped or None,
        "by": by,
        "rq": new_token(),
        "at": attempt,
        "rb": answer.packed if answer is not None else None,
        "md": check_metadata(metadata) if metadata is not None else None,
        "pf": public_fields(metadata) if metadata is not None else None,
    }

    def decode(reply: list[Any]) -> Reconciled:
        return Reconciled(reply[1].decode(), json.loads(reply[2]), reply[3])

    return ScriptCall.of("reconcile_mutation", shard_of_session(sid, shards), pack(request), decode=decode)


@dataclass(frozen=True, slots=True)
class Target:
    """Which mutation metadata belongs to: by delivery or by logical turn, always within one agent and user."""

    tenant: str
    session_id: str
    agent: str
    user: str
    mutation_id: str
    delivery_id: str | None = None
    logical_turn_id: str | None = None


def attach_metadata(target: Target, metadata: Mapping[str, Any], shards: int) -> ScriptCall[tuple[dict[str, Any], int]]:
    """Attaches host metadata; answers the record as it is (or will be) published, and the revision (C-90).

    The call has a token of its own: sent again, it does not replace what was attached meanwhile (C-22).

    Raises InvalidRequest for other fields, types or sizes; when run, Refused with not_found.
    """
    text = check_metadata(metadata)
    sid = session_hash(target.tenant, target.session_id)
    request: dict[str, Any] = {
        "sid": sid,
        "tn": target.tenant,
        "a": target.agent,
        "u": target.user,
        "m": bytes.fromhex(target.mutation_id),
        "md": text,
        "pf": public_fields(metadata),
        "rq": new_token(),
    }
    if target.logical_turn_id is not None:
        request["t"] = target.logical_turn_id
    else:
        request["d"] = bytes.fromhex(
            delivery_identity(target.tenant, target.session_id, target.agent, target.user, target.delivery_id or "")
        )
    return ScriptCall.of(
        "attach_metadata",
        shard_of_session(sid, shards),
        pack(request),
        decode=lambda reply: (json.loads(reply[1]), reply[2]),
    )
