"""What every request and answer has in common: request id, security headers, counting."""

from __future__ import annotations

import re
import secrets
import time

from flask import Flask, Response, g, request
from structlog.contextvars import bind_contextvars, clear_contextvars

from service.door import current_door

_METHODS = frozenset({"GET", "HEAD", "POST", "DELETE"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
# Answers hold approvals and outcomes: nothing may keep, frame, sniff or refer to them.
_HEADERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
    ("Referrer-Policy", "no-referrer"),
)


def init_requests(app: Flask) -> None:
    """Registers the hooks."""
    app.before_request(_begin)
    app.after_request(_finish)


def _begin() -> None:
    g.began = time.perf_counter()
    given = request.headers.get("X-Request-ID", "")
    g.request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(16)
    clear_contextvars()
    bind_contextvars(request_id=g.request_id)


def _finish(response: Response) -> Response:
    headers = response.headers
    headers["X-Request-ID"] = g.request_id
    for name, value in _HEADERS:
        if name not in headers:
            headers[name] = value
    route = request.url_rule.rule if request.url_rule is not None else "unmatched"
    method = request.method if request.method in _METHODS else "other"
    current_door().metrics.answered(route, method, response.status_code, time.perf_counter() - g.began)
    return response
