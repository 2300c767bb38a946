"""The host's side of a turn: override what you need. Every method may be sync (run in a thread) or async."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from ledger.engine.human import HumanDecision, HumanRequest
from ledger.records import Event


class Adapter:
    """Base of adapters; it shows nothing and decides nothing.

    What these methods raise is logged by its type and changes no settlement. `deadline_monotonic` is when the
    interaction behind the adapter ends (`time.monotonic`); an earlier one bounds the request (C-50).
    """

    deadline_monotonic: float | None = None

    def on_mutation_outcome(self, outcome: dict[str, Any], *, mutation_revision: int) -> Awaitable[None] | None:
        """A `mutation_outcome/v1` record that is on disk by now, in revision order. Refusals emit none (C-11, C-25)."""

    def on_event(self, event: Event) -> Awaitable[None] | None:
        """An event of the run's journal, in order; `tool_execution_started` among them proves nothing remote."""

    def request_human(self, request: HumanRequest) -> Awaitable[HumanDecision | None] | HumanDecision | None:
        """Asks a person. None leaves the request to other channels: the API, the command line."""

    def on_decision(self, request: HumanRequest, result: str) -> Awaitable[None] | None:
        """What became of this adapter's answer: `approved`, `denied`, or the code of its refusal.

        Codes: `not_an_approver`, `requester_may_not_approve`, `confirmation_mismatch`, `already_decided`,
        `approval_expired`, `approval_cancelled`.
        """


def overrides(adapter: Adapter, method: str) -> bool:
    """Whether the adapter does anything in `method`."""
    return getattr(type(adapter), method, None) is not getattr(Adapter, method)
