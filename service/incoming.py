"""Reading requests: raw bytes through strict JSON, then shape; query strings; the reply form asked for (C-02, C-64)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import gevent
from flask import current_app, request
from gunicorn.http.errors import ParseException
from pydantic import BaseModel, ValidationError
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.routing import BaseConverter

from ledger.errors import InvalidRequest, Refused
from ledger.strict_json import BODY_DEPTH, loads

M = TypeVar("M", bound=BaseModel)

JSON = "application/json"
NDJSON = "application/x-ndjson"
SSE = "text/event-stream"
MAX_NAME = 64
BODY_SECONDS = 30


def read_body(model: type[M]) -> M:
    """The request's body as `model`.

    Raises:
        InvalidRequest: not strict JSON, or not of this shape; names the field's path, never its value.
        Refused: unsupported_media_type.
        RequestEntityTooLarge: over `max_body_bytes`, also when sent in chunks.
    """
    _require_json()
    return _validate(model, loads(read_bytes(), max_depth=BODY_DEPTH))


def read_bytes() -> bytes:
    """The request's body, at most `max_body_bytes`.

    Raises:
        InvalidRequest: the client stopped or stalled in the middle, or its chunks are malformed.
        RequestEntityTooLarge: it is larger.
    """
    most: int = current_app.config["MAX_BODY_BYTES"]
    # Werkzeug cuts a chunked body off at its own limit without a word; one byte more shows that it was too large.
    request.max_content_length = most + 1
    stalled = InvalidRequest(f"the body did not arrive within {BODY_SECONDS} s")
    try:
        with gevent.Timeout(BODY_SECONDS, stalled):
            data = request.get_data(cache=False)
    except (ParseException, OSError):
        raise InvalidRequest("the body could not be read to its end") from None
    if len(data) > most:
        raise RequestEntityTooLarge
    # The server hands on what came before a connection was closed, which may be whole JSON by accident.
    if request.content_length is not None and len(data) < request.content_length:
        raise InvalidRequest("the body could not be read to its end")
    return data


def read_query(model: type[M]) -> M:
    """The query string as `model`.

    Raises:
        InvalidRequest: an unknown, repeated or malformed parameter.
    """
    values: dict[str, str] = {}
    for name, given in request.args.lists():
        if len(given) > 1:
            raise InvalidRequest(f"{name[:MAX_NAME]}: given more than once")
        values[name] = given[0]
    return _validate(model, values)


def path_value(name: str) -> str:
    """A part of the path; flask-openapi hands views only what it validated itself."""
    return str((request.view_args or {})[name])


class SessionPart(BaseConverter):
    """A session id in a path; it may hold slashes, anywhere (the route checks the rest)."""

    regex = ".+"
    part_isolating = False


def choose(forms: Sequence[str]) -> str:
    """The reply form that `Accept` prefers among `forms`; the first one when it does not care.

    Raises:
        Refused: not_acceptable.
    """
    accept = request.headers.get("Accept")
    if accept is None or accept in ("", "*/*", forms[0]):
        return forms[0]
    found = request.accept_mimetypes.best_match(forms)
    if found is None:
        raise Refused(f"this route gives {', '.join(forms)}", code="not_acceptable")
    return found


def last_event_id(after: int | None) -> int:
    """The position to read from: `after`, else the `Last-Event-ID` of a client that reconnects, else 0.

    Raises:
        InvalidRequest: the header is not a number.
    """
    if after is not None:
        return after
    text = request.headers.get("Last-Event-ID", "")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise InvalidRequest("Last-Event-ID: must be a whole number, 0 or more")
    return int(text)


def idempotency_key(delivery_id: str | None) -> str | None:
    """The delivery id: of the body, or of the header `Idempotency-Key` (C-60).

    Raises:
        InvalidRequest: both are given and differ, or the header is not 1-128 ASCII characters.
    """
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return delivery_id
    if not (key.isascii() and 1 <= len(key) <= 128):
        raise InvalidRequest("Idempotency-Key: must be 1-128 ASCII characters")
    if delivery_id is not None and delivery_id != key:
        raise InvalidRequest("delivery_id and Idempotency-Key differ")
    return key


def _require_json() -> None:
    kind = request.mimetype
    json = kind == JSON or (kind.startswith("application/") and kind.endswith("+json"))
    charset = request.mimetype_params.get("charset", "utf-8").lower()
    plain = request.headers.get("Content-Encoding", "identity").lower() == "identity"
    if not (json and charset in ("utf-8", "utf8") and plain):
        raise Refused("send application/json in UTF-8, not compressed", code="unsupported_media_type")


def _validate(model: type[M], value: Any) -> M:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidRequest(_fault(error)) from None


def _fault(error: ValidationError) -> str:
    """The first fault in one line: where, and what is expected there."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part)[:MAX_NAME] for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    return f"{where}: {message}" if where else message
