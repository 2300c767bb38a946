"""Every error as `application/problem+json`, also Flask's own; never HTML, arguments or secrets."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

import structlog
from flask import Flask, Response, g
from werkzeug.exceptions import HTTPException

from ledger.errors import (
    ConfigError,
    InvalidRequest,
    LedgerError,
    Refused,
    StoreUnavailable,
    StoreUnsafe,
    StoreWentBack,
)
from service.beating import PolicyDiffers
from service.jsonio import dump
from service.problems import PROBLEMS, code_of_status, problem
from service.rates import RateLimited

log = structlog.get_logger(__name__)

PROBLEM_JSON = "application/problem+json"
# Errors whose message was written for callers; that of any other may quote what the store said.
_TELLABLE = (
    InvalidRequest,
    Refused,
    ConfigError,
    StoreUnavailable,
    StoreUnsafe,
    StoreWentBack,
    PolicyDiffers,
    RateLimited,
)


def init_errors(app: Flask) -> None:
    """Registers the handlers."""
    app.register_error_handler(LedgerError, _on_ledger_error)
    app.register_error_handler(HTTPException, _on_http_error)
    app.register_error_handler(Exception, _on_unexpected)


def problem_response(code: str, detail: str, members: Mapping[str, Any] | None = None) -> Response:
    """A response with the problem document of `code`; its status and Retry-After come from the one table."""
    document = problem(code, detail, **(members or {}))
    request_id = g.get("request_id")
    if request_id is not None:
        document["request_id"] = request_id
    response = Response(dump(document), document["status"], content_type=PROBLEM_JSON)
    retry_after = PROBLEMS[document["code"]].retry_after
    if retry_after is not None:
        response.headers["Retry-After"] = str(retry_after)
    if document["status"] == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="mutation-ledger"'
    g.problem = document["code"]
    return response


def _on_ledger_error(error: LedgerError) -> Response:
    kind = PROBLEMS.get(error.code, PROBLEMS["internal_error"])
    if kind.status == 500:
        log.error("request_failed", code=error.code, error=type(error).__name__)
    detail = str(error) if isinstance(error, _TELLABLE) else kind.title
    response = problem_response(error.code, detail, error.extra.get("members"))
    if "retry_after" in error.extra:
        response.headers["Retry-After"] = str(error.extra["retry_after"])
    return response


def _on_http_error(error: HTTPException) -> Response:
    code = code_of_status(error.code or 500)
    response = problem_response(code, PROBLEMS[code].title)
    if error.code is not None and code == "invalid_request":
        response.status_code = 400
    for name, value in error.get_headers():
        if name in ("Allow", "Retry-After"):
            response.headers[name] = value
    return response


def _on_unexpected(error: Exception) -> Response:
    # Frames only: an exception's text may quote what a caller sent.
    frames = traceback.format_tb(error.__traceback__, limit=-8)
    log.error("request_crashed", error=type(error).__name__, frames=frames)
    return problem_response("internal_error", PROBLEMS["internal_error"].title)
