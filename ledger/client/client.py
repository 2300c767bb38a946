"""The API's operations as methods; one call is one request, except where a delivery or a stream goes on."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast
from urllib.parse import quote

from ledger.client.errors import ServiceUnavailable
from ledger.client.following import Pauses, follow
from ledger.client.http import Http
from ledger.client.shapes import Approval, Change, Event, Ready, Record, Run, State
from ledger.errors import LedgerError, StoreUnavailable

PAGE_APPROVALS = 200


class Client:
    """Talks to one front door (`url`) as the principal of `token`.

    `timeout` seconds bound the silence within one reply; `retry_seconds` how long a delivery that got no answer, or a
    503, is sent again under its `delivery_id` (C-26), and a stream that broke is taken up again after the last event.
    Nothing else is ever sent again. Every method raises ServiceUnavailable, StoreUnavailable, InvalidRequest and
    Refused, with the API's `code`.
    """

    def __init__(self, url: str, token: str, *, timeout: float = 30.0, retry_seconds: float = 15.0) -> None:
        self._http = Http(url, token, timeout)
        self._retry_seconds = retry_seconds

    def trigger(
        self,
        session_id: str,
        calls: Sequence[Mapping[str, Any]] | None = None,
        *,
        handler: str | None = None,
        text: str | None = None,
        input: Any = None,
        agent: str | None = None,
        user: str | None = None,
        delivery_id: str | None = None,
        logical_turn_id: str | None = None,
        on_error: Literal["stop", "continue"] | None = None,
        deadline_seconds: float | None = None,
        wait: float | None = None,
    ) -> Run:
        """Hands in a delivery: `calls`, or a turn `handler` with `text` and `input`.

        A call is `{"tool": ..., "arguments": {...}}`. `wait`: seconds (0-60) to wait for the run's end.
        """
        body = _delivery(
            session_id=session_id, calls=calls, handler=handler, text=text, input=input, agent=agent, user=user,
            delivery_id=delivery_id, logical_turn_id=logical_turn_id, on_error=on_error,
            deadline_seconds=deadline_seconds,
        )  # fmt: skip
        pauses = Pauses(self._retry_seconds)
        while True:
            try:
                reply = self._http.call("POST", "/api/trigger", query={"wait": wait}, body=body, wait=wait or 0)
                return cast(Run, reply)
            except (ServiceUnavailable, StoreUnavailable) as error:
                if not pauses.after(error):
                    raise _with_delivery(error, body["delivery_id"]) from None

    def trigger_stream(
        self,
        session_id: str,
        calls: Sequence[Mapping[str, Any]] | None = None,
        *,
        handler: str | None = None,
        text: str | None = None,
        input: Any = None,
        agent: str | None = None,
        user: str | None = None,
        delivery_id: str | None = None,
        logical_turn_id: str | None = None,
        on_error: Literal["stop", "continue"] | None = None,
        deadline_seconds: float | None = None,
    ) -> Iterator[Event]:
        """Hands in a delivery and yields its run's events as they come, each once; the last one is of type `done`.

        A broken stream is taken up again. When that takes too long, the error names the delivery; handing it in again
        attaches to the run (C-60).
        """
        body = _delivery(
            session_id=session_id, calls=calls, handler=handler, text=text, input=input, agent=agent, user=user,
            delivery_id=delivery_id, logical_turn_id=logical_turn_id, on_error=on_error,
            deadline_seconds=deadline_seconds,
        )  # fmt: skip
        pauses = Pauses(self._retry_seconds)
        try:
            yield from follow(lambda: self._http.lines("POST", "/api/trigger", body=body), self._journal, pauses)
        except (ServiceUnavailable, StoreUnavailable) as error:
            raise _with_delivery(error, body["delivery_id"]) from None

    def run(self, run_id: str) -> Run:
        """A run as it is now."""
        return cast(Run, self._http.call("GET", f"/api/runs/{_part(run_id)}"))

    def events(self, run_id: str, *, after: int = 0, follow: bool = False) -> Iterator[Event]:
        """A run's journal after event number `after`; with `follow` until the run's end, over broken connections.

        An ended run's last event is of type `done`.
        """
        if follow:
            yield from _follow(self, run_id, after)
            return
        query = {"after": after}
        yield from self._http.lines("GET", f"/api/runs/{_part(run_id)}/events", query=query)

    def cancel(self, run_id: str) -> Run:
        """Cancels a run; its `status` says `cancelled` or `cancelling` (C-55)."""
        return cast(Run, self._http.call("POST", f"/api/runs/{_part(run_id)}/cancel"))

    def approvals(self, *, session_id: str | None = None, limit: int | None = None) -> list[Approval]:
        """The tenant's pending approvals, oldest first: all of them, or the first `limit`, read in pages."""
        found: list[Approval] = []
        after: str | None = None
        while limit is None or len(found) < limit:
            size = PAGE_APPROVALS if limit is None else min(PAGE_APPROVALS, limit - len(found))
            query = {"state": "pending", "session_id": session_id, "limit": size, "after": after}
            page = self._http.call("GET", "/api/approvals", query=query)
            found += page["approvals"]
            after = page["next"]
            if after is None:
                break
        return found

    def approval(self, approval_id: str) -> Approval:
        """One approval in any state."""
        return cast(Approval, self._http.call("GET", f"/api/approvals/{_part(approval_id)}"))

    def decide(
        self,
        approval_id: str,
        decision: Literal["approve", "deny"],
        *,
        confirm: str | None = None,
        comment: str | None = None,
    ) -> Approval:
        """Decides an approval. `confirm` is the tool's name, wanted for level `confirm` (C-07)."""
        body = _given(decision=decision, confirm=confirm, comment=comment)
        return cast(Approval, self._http.call("POST", f"/api/approvals/{_part(approval_id)}", body=body))

    def erase(self, session_id: str, *, wait: float | None = None) -> bool:
        """Erases a session (C-82). True once everything is deleted, for which `wait` seconds (0-60) are waited.

        It may be given again after a lost answer; when all is gone by then, it raises Refused with not_found.
        """
        path = f"/api/sessions/{_part(session_id)}"
        return self._http.call("DELETE", path, query={"wait": wait}, wait=wait or 0) is None

    def outcomes(self, session_id: str) -> list[Record]:
        """A session's outcomes, oldest turn first; empty for an unknown session."""
        reply = self._http.call("GET", "/api/mutation-outcomes", query={"session_id": session_id})
        return cast(list[Record], reply["mutation_outcomes"])

    def mutation_events(self, session_id: str, logical_turn_id: str, *, after: int = 0) -> list[Change]:
        """What changed in a turn after revision `after`, and every unknown outcome, oldest revision first (C-110)."""
        query = {"session_id": session_id, "logical_turn_id": logical_turn_id, "after": after}
        frames = self._http.frames("GET", "/api/mutation-events", query=query)
        return [Change(number, cast(Record, value)) for number, value in frames]

    def mutation_state(
        self, session_id: str, delivery_id: str, *, agent: str | None = None, user: str | None = None
    ) -> State | None:
        """The snapshot of the turn that a delivery made or continued; None while it holds no mutation (C-92)."""
        query = {"session_id": session_id, "delivery_id": delivery_id, "agent": agent, "user": user}
        return cast("State | None", self._http.call("GET", "/api/mutation-state", query=query)["mutation_state"])

    def attach_metadata(
        self,
        session_id: str,
        mutation_id: str,
        metadata: Mapping[str, str],
        *,
        delivery_id: str | None = None,
        logical_turn_id: str | None = None,
        agent: str | None = None,
        user: str | None = None,
    ) -> Record:
        """Attaches host metadata to a mutation, found by its delivery or its turn (C-90)."""
        body = _given(
            session_id=session_id, mutation_id=mutation_id, metadata=dict(metadata), delivery_id=delivery_id,
            logical_turn_id=logical_turn_id, agent=agent, user=user,
        )  # fmt: skip
        return cast(Record, self._http.call("POST", "/api/mutation-metadata", body=body))

    def outcome_contract(self) -> dict[str, Any]:
        """Limits, JSON Schema and examples of outcome records (C-101)."""
        return cast(dict[str, Any], self._http.call("GET", "/api/contracts/mutation_outcome_v1.json"))

    def openapi(self) -> dict[str, Any]:
        """The API's own description."""
        return cast(dict[str, Any], self._http.call("GET", "/openapi.json"))

    def alive(self) -> bool:
        """Whether the front door serves."""
        return bool(self._http.call("GET", "/livez")["status"] == "alive")

    def ready(self) -> Ready:
        """How far the store's confirmations can be trusted. Raises StoreError while it cannot promise (C-21)."""
        return cast(Ready, self._http.call("GET", "/readyz"))

    def metrics(self) -> str:
        """The front door's metrics in Prometheus' text format."""
        return self._http.text("GET", "/metrics")

    def _journal(self, run_id: str, after: int) -> Iterator[Any]:
        query = {"after": after, "follow": 1}
        return self._http.lines("GET", f"/api/runs/{_part(run_id)}/events", query=query)


def _follow(client: Client, run_id: str, after: int) -> Iterator[Event]:
    pauses = Pauses(client._retry_seconds)
    return follow(lambda: client._journal(run_id, after), client._journal, pauses, seen=after)


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _delivery(
    *, session_id: str, calls: Sequence[Mapping[str, Any]] | None, delivery_id: str | None, **fields: Any
) -> dict[str, Any]:
    listed = None if calls is None else [dict(call) for call in calls]
    return _given(session_id=session_id, delivery_id=delivery_id or uuid.uuid4().hex, calls=listed, **fields)


def _with_delivery(error: LedgerError, delivery_id: str) -> LedgerError:
    """The same error, naming what to send again."""
    extra = {**error.extra, "delivery_id": delivery_id}
    return type(error)(f"{error}; deliver again as {delivery_id}", code=error.code, **extra)


def _part(value: str) -> str:
    return quote(value, safe="")
