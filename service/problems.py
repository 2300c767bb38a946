"""The one table from error codes to HTTP: status, title, and when to come back (RFC 9457)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

URN = "urn:mutation-ledger:problem:"


@dataclass(frozen=True, slots=True)
class ProblemType:
    """What is the same for every problem of one code. `retry_after` is in seconds."""

    status: int
    title: str
    retry_after: int | None = None


PROBLEMS: dict[str, ProblemType] = {
    "invalid_request": ProblemType(400, "The request has the wrong shape"),
    "agent_required": ProblemType(400, "The token allows several agents: name one"),
    "unauthorized": ProblemType(401, "A valid bearer token is required"),
    "forbidden": ProblemType(403, "The token lacks the role for this"),
    "agent_not_allowed": ProblemType(403, "The token does not allow this agent"),
    "user_not_allowed": ProblemType(403, "The token may not name a user"),
    "not_an_approver": ProblemType(403, "The token lacks the role approve"),
    "requester_may_not_approve": ProblemType(403, "Whoever asked may not decide"),
    "not_found": ProblemType(404, "There is no such thing"),
    "method_not_allowed": ProblemType(405, "The method is not allowed here"),
    "not_acceptable": ProblemType(406, "None of the accepted types can be given"),
    "already_decided": ProblemType(409, "Another decision came first"),
    "approval_expired": ProblemType(409, "The decision came too late"),
    "approval_cancelled": ProblemType(409, "The run ended before the decision"),
    "cursor_ahead": ProblemType(409, "The cursor is past the latest event or revision"),
    "delivery_limit": ProblemType(409, "The logical turn holds 50 deliveries"),
    "logical_turn_unavailable": ProblemType(409, "The logical turn cannot be continued"),
    "run_ended": ProblemType(409, "The run has ended"),
    "delivery_retired": ProblemType(410, "The delivery was retired and never runs again"),
    "body_too_large": ProblemType(413, "The request body is too large"),
    "uri_too_long": ProblemType(414, "The request line is too long"),
    "unsupported_media_type": ProblemType(415, "The body must be JSON in UTF-8"),
    "arguments_invalid": ProblemType(422, "The arguments do not fit the tool's schema"),
    "confirmation_mismatch": ProblemType(422, "The tool name typed does not match"),
    "delivery_mismatch": ProblemType(422, "The same delivery_id came with other content"),
    "unknown_handler": ProblemType(422, "No such turn handler is registered"),
    "unknown_tool": ProblemType(422, "No such tool is known"),
    "approvals_full": ProblemType(429, "Too many approvals wait in this session", 5),
    "rate_limited": ProblemType(429, "The token asks more often than it may", 1),
    "queue_full": ProblemType(429, "Too many runs are live in this session", 5),
    "headers_too_large": ProblemType(431, "The request headers are too large"),
    "internal_error": ProblemType(500, "Something failed inside the service"),
    "config_error": ProblemType(500, "The service is configured wrongly"),
    "not_implemented": ProblemType(501, "The transfer coding is not supported"),
    "format_too_new": ProblemType(503, "A newer version wrote this record: update this service", 30),
    "policy_differs": ProblemType(503, "Living processes follow another policy", 5),
    "policy_stale": ProblemType(503, "Tools are being declared as mutations right now", 1),
    "store_unavailable": ProblemType(503, "The store cannot promise anything right now", 1),
    "store_unconfirmed": ProblemType(503, "The store did not confirm the write in time", 1),
    "store_unsafe": ProblemType(503, "The store's settings cannot keep the promise", 30),
    "store_went_back": ProblemType(503, "The store lost confirmed writes: a person must look", 60),
    "tombstone_key_changed": ProblemType(503, "The store has another tombstone key: a person must look", 60),
    "too_many_streams": ProblemType(503, "Too many streams are open here", 5),
}
# What Flask and gunicorn raise by themselves; any other status below 500 is answered as invalid_request.
_BY_STATUS = {
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    413: "body_too_large",
    414: "uri_too_long",
    415: "unsupported_media_type",
    431: "headers_too_large",
    501: "not_implemented",
}


def code_of_status(status: int) -> str:
    """The problem code for an HTTP error that a library raised."""
    return _BY_STATUS.get(status, "invalid_request" if status < 500 else "internal_error")


def problem(code: str, detail: str, **members: Any) -> dict[str, Any]:
    """A problem document. An unknown `code` becomes `internal_error`, so that nothing inner shows."""
    known = code if code in PROBLEMS else "internal_error"
    kind = PROBLEMS[known]
    return {
        "type": URN + known,
        "title": kind.title,
        "status": kind.status,
        "code": known,
        "detail": detail,
        **members,
    }
