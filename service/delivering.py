"""From a request to a delivery, and its admission under the policy as it is declared now (C-05, C-60)."""

from __future__ import annotations

import re
from collections.abc import Callable

from ledger.admission import Admitted, Delivery
from ledger.errors import Refused
from ledger.proposing import POLICY_STALE, Acting, Asked, milliseconds
from ledger.store import ScriptCall
from ledger.store.codec import unpack
from ledger.tokens import Principal
from service.door import FrontDoor
from service.models import TriggerRequest

STALE_MAX = 3
"""Declarations come from people who start hosts; more of them during one request are not waited for."""
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


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
    agent, user = acting
    return door.proposer.delivery(
        Acting(principal.tenant, asked.session_id, agent, user, principal.name),
        Asked(
            calls=None if asked.calls is None else [(call.tool, call.arguments) for call in asked.calls],
            on_error=asked.on_error,
            logical_turn_id=asked.logical_turn_id,
            handler=asked.handler,
            text=asked.text,
            input=asked.input,
        ),
        delivery_id=delivery_id,
        deadline_ms=milliseconds(asked.deadline_seconds),
        traceparent=traceparent if traceparent and _TRACEPARENT.fullmatch(traceparent) else None,
    )


def admit(door: FrontDoor, delivery: Delivery, again: Callable[[], Delivery]) -> Admitted:
    """Admits a delivery; `again` builds it anew when hosts have declared tools since it was built.

    Raises what `admit_delivery` lists and what the store raises.
    """
    door.require_key()
    for _ in range(STALE_MAX):
        call = door.proposer.admission(delivery)
        try:
            return door.write(call, {"admitted": "unknown", "delivery_id": _retry_id(delivery, call)})
        except Refused as error:
            if error.code != POLICY_STALE:
                raise
        door.catch_up(door.proposer.shard(delivery))
        delivery = again()
    raise Refused("tools are being declared again and again", code=POLICY_STALE)


def _retry_id(delivery: Delivery, call: ScriptCall[Admitted]) -> str:
    """What to retry an unconfirmed admission with: the caller's id, or the one that admission made (C-26)."""
    if delivery.delivery_id is not None:
        return delivery.delivery_id
    made: str = unpack(call.args[0])["di"]  # type: ignore[arg-type]  # a script's request is packed bytes
    return made
