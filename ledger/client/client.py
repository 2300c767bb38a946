"""The API's operations as methods; one call is one request, except where a delivery is sent again."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast
from urllib.parse import quote

from ledger.client.errors import ServiceUnavailable
from ledger.client.http import Http
from ledger.client.shapes import Approval, Event, Record, Run
from ledger.errors import LedgerError, StoreUnavailable

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
# The most that the API lists at once; deciding some shows the next.
MOST_APPROVALS = 200


class Client:
    """Talks to one front door (`url`) as the principal of `token`.

    `timeout` seconds bound the silence within one reply; `retry_seconds` how long a delivery that got no answer, or a
    503, is sent again under its `delivery_id` (C-26). Nothing else is ever sent again. Every method raises
    ServiceUnavailable, StoreUnavailable, InvalidRequest and Refused, with the API's `code`.
    """

    def __init__(self, url: str, token: str, *, timeout: float = 30.0, retry_seconds: float = 15.0) -> None:
        self._http = Http(url, token, timeout)
        self._retry_seconds = retry_seconds

    def trigger(
        self,
        session_id: str,
        calls: Sequence[Mapping[str, Any]],
        *,
        delivery_id: str | None = None,
        wait: float | None = None,
        **fields: Any,
    ) -> Run:
        """Hands in a delivery. `wait`: seconds (0-60) to wait for its end; `fields`: agent, user, on_error, ...

        A call is `{"tool": ..., "arguments": {...}}`.
        """
        body = _delivery(session_id, calls, delivery_id, fields)
        end = time.monotonic() + self._retry_seconds
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return cast(
                    Run, self._http.call("POST", "/api/trigger", query={"wait": wait}, body=body, wait=wait or 0)
                )
            except (ServiceUnavailable, StoreUnavailable) as error:
                asked: float = error.extra.get("retry_after") or pause
                if time.monotonic() + asked >= end:
                    raise _with_delivery(error, body["delivery_id"]) from None
                time.sleep(asked)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def trigger_stream(
        self, session_id: str, calls: Sequence[Mapping[str, Any]], *, delivery_id: str | None = None, **fields: Any
    ) -> Iterator[Event]:
        """Hands in a delivery and yields its run's events as they come; the last one is of type `done`.

        A broken stream raises ServiceUnavailable naming the delivery; handing it in again attaches to the run (C-60).
        """
        body = _delivery(session_id, calls, delivery_id, fields)
        last = ""
        try:
            for event in self._http.lines("POST", "/api/trigger", body=body):
                last = event["type"]
                yield event
        except ServiceUnavailable as error:
            raise _with_delivery(error, body["delivery_id"]) from None
        if last != "done":
            ended = ServiceUnavailable("the stream ended before the run did")
            raise _with_delivery(ended, body["delivery_id"])

    def run(self, run_id: str) -> Run:
        """A run as it is now."""
        return cast(Run, self._http.call("GET", f"/api/runs/{_part(run_id)}"))

    def events(self, run_id: str, *, after: int = 0, follow: bool = False) -> Iterator[Event]:
        """A run's journal after event number `after`; with `follow` until the run's end."""
        query = {"after": after, "follow": 1 if follow else None}
        yield from self._http.lines("GET", f"/api/runs/{_part(run_id)}/events", query=query)

    def cancel(self, run_id: str) -> dict[str, Any]:
        """Cancels a run; the answer says `cancelled` or `cancelling` (C-55)."""
        return cast(dict[str, Any], self._http.call("POST", f"/api/runs/{_part(run_id)}/cancel"))

    def approvals(self, *, session_id: str | None = None) -> list[Approval]:
        """The tenant's oldest pending approvals, oldest first, at most MOST_APPROVALS."""
        reply = self._http.call("GET", "/api/approvals", query={"session_id": session_id, "limit": MOST_APPROVALS})
        return cast(list[Approval], reply["approvals"])

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
        body = {"decision": decision, "confirm": confirm, "comment": comment}
        given = {name: value for name, value in body.items() if value is not None}
        return cast(Approval, self._http.call("POST", f"/api/approvals/{_part(approval_id)}", body=given))

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


def _delivery(
    session_id: str, calls: Sequence[Mapping[str, Any]], delivery_id: str | None, fields: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "session_id": session_id,
        "delivery_id": delivery_id or uuid.uuid4().hex,
        "calls": [dict(call) for call in calls],
        **fields,
    }


def _with_delivery(error: LedgerError, delivery_id: str) -> LedgerError:
    """The same error, naming what to send again."""
    extra = {**error.extra, "delivery_id": delivery_id}
    return type(error)(f"{error}; deliver again as {delivery_id}", code=error.code, **extra)


def _part(value: str) -> str:
    return quote(value, safe="")
