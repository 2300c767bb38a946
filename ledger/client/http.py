"""One request at a time over `http.client`: JSON in, JSON or JSON lines out, problems as errors."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit

from ledger.client.errors import ServiceUnavailable, from_problem
from ledger.errors import ConfigError, InvalidRequest
from ledger.long_integers import read_json, write_json

_ENCODER = json.JSONEncoder(allow_nan=False)
JSON = "application/json"
LINES = "application/x-ndjson"
FRAMES = "text/event-stream"
HEARTBEAT = {"type": "heartbeat"}


class Http:
    """Requests to one front door with one token. Raises only this package's errors; the token is in none of them."""

    def __init__(self, url: str, token: str, timeout: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("the front door's URL must begin with http:// or https:// and name a host")
        if not token or not token.isascii() or not token.isprintable():
            raise ConfigError("no usable token: give --token or set MUTATION_LEDGER_TOKEN")
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port = parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"}
        self._timeout = timeout

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        wait: float = 0,
    ) -> Any:
        """The reply's JSON, or None if it has no body. `wait` seconds are added to the timeout.

        Raises ServiceUnavailable and what `from_problem` makes.
        """
        with self._answer(method, path, query, body, JSON, wait) as response:
            content = response.read()
            return _parse(content) if content else None

    def lines(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Iterator[Any]:
        """The reply's JSON lines as they come, without heartbeats. Raises as `call`."""
        with self._answer(method, path, query, body, LINES, 0) as response:
            while line := response.readline():
                value = _parse(line) if line.strip() else HEARTBEAT
                if value != HEARTBEAT:
                    yield value

    def frames(self, method: str, path: str, *, query: Mapping[str, Any] | None = None) -> Iterator[tuple[int, Any]]:
        """The reply's server-sent events as `(id, JSON value)`, without comments. Raises as `call`."""
        number = 0
        with self._answer(method, path, query, None, FRAMES, 0) as response:
            while line := response.readline():
                name, _, value = line.decode("utf-8", "replace").strip().partition(": ")
                if name == "id":
                    number = int(value)
                elif name == "data":
                    yield number, _parse(value.encode())

    def text(self, method: str, path: str) -> str:
        """The reply's text. Raises as `call`."""
        with self._answer(method, path, None, None, "text/plain", 0) as response:
            return response.read().decode("utf-8", "replace")

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Mapping[str, Any] | None,
        accept: str,
        wait: float,
    ) -> Iterator[http.client.HTTPResponse]:
        connection = self._kind(self._host, self._port, timeout=self._timeout + wait)
        content = None if body is None else _written(body)
        headers = {**self._headers, "Accept": accept, **({"Content-Type": JSON} if content is not None else {})}
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = self._prefix + path + (f"?{urlencode(given)}" if given else "")
        try:
            connection.request(method, target, content, headers)
            response = connection.getresponse()
            if response.status >= 300:
                raise from_problem(response.status, _problem(response.read()), _seconds(response))
            yield response
        except (OSError, http.client.HTTPException) as error:
            where = f"{self._host}:{connection.port}"
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise ServiceUnavailable(f"the front door at {where} does not answer: {reason}") from None
        finally:
            connection.close()


def _written(body: Mapping[str, Any]) -> bytes:
    """Exact: the standard encoder keeps what others round, and refuses what JSON does not have (C-02)."""
    try:
        return write_json(body, _ENCODER).encode()
    except (ValueError, TypeError, RecursionError):
        raise InvalidRequest("the request cannot be written as JSON") from None


def _parse(content: bytes) -> Any:
    try:
        return read_json(content)
    except ValueError:
        raise ServiceUnavailable("the answer is not JSON: is this the front door's URL?") from None


def _problem(content: bytes) -> Mapping[str, Any]:
    """A gateway in between may answer with anything."""
    try:
        problem = json.loads(content)
    except ValueError:
        problem = None
    return problem if isinstance(problem, dict) else {}


def _seconds(response: http.client.HTTPResponse) -> float | None:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdigit() else None
