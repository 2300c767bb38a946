"""The Streamable HTTP transport: the SDK's, over an HTTP client that sees every byte leave.

The SDK builds requests, reads event streams and resumes dropped ones with GET. What it leaves open is closed
one layer below, where bytes are sent: the last check, one POST per call (also through redirects), an answer
for every failure, so that one lost reply does not take the session's other calls with it, and bounded bodies.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from ledger.config import McpServerConfig, resolve_secret
from ledger.faultpoints import reach
from ledger.long_integers import write_json
from workers.tools.channel import Channel, Health
from workers.tools.dispatch import Dispatch, NotSent
from workers.tools.one_call import CURRENT
from workers.tools.wire import ENCODER

CONNECT_SECONDS = 10.0
# For requests that are not tool calls; a call has its own deadline, and its reply may take as long.
SILENCE_SECONDS = 30.0
GOODBYE_SECONDS = 2.0
# Servers commonly close idle connections after five seconds. A request that meets such a close gets no
# answer, which would be an unknown outcome for nothing.
KEEPALIVE_SECONDS = 2.0


@asynccontextmanager
async def open_http(config: McpServerConfig) -> AsyncIterator[Channel]:
    """A channel to the server at `config.url`. Raises ConfigError for a secret that is not there."""
    health = Health()
    headers = {key: resolve_secret(value) for key, value in config.headers.items()}
    limits = httpx2.Limits(keepalive_expiry=KEEPALIVE_SECONDS)
    client = ExactClient(
        transport=OncePerCall(httpx2.AsyncHTTPTransport(limits=limits), config.reply_read_bytes, health),
        # A compressed reply could grow without bound.
        headers={"Accept-Encoding": "identity", **headers},
        timeout=httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS, pool=None),
        # The SDK would POST the call again to wherever a 307 points.
        max_redirects=0,
    )
    streams = streamable_http_client(config.url or "", http_client=client, max_sse_event_size=config.reply_read_bytes)
    async with client, streams as (reader, writer):
        yield Channel(reader=reader, writer=writer, health=health, reply_stream_each=True)


class ExactClient(httpx2.AsyncClient):
    """Writes JSON bodies as the stdio transport does: integers of any size exact (C-01)."""

    def build_request(self, method: str, url: httpx2.URL | str, *, json: Any = None, **more: Any) -> httpx2.Request:
        """As the base class; what cannot be written fails here, before anything is sent."""
        if json is None:
            return super().build_request(method, url, **more)
        headers = httpx2.Headers(more.pop("headers", None))
        headers.setdefault("Content-Type", "application/json")
        content = write_json(json, ENCODER).encode("ascii")
        return super().build_request(method, url, headers=headers, **(more | {"content": content}))


class OncePerCall(httpx2.AsyncBaseTransport):
    """Wraps the real HTTP transport; any answer to a call but 200 makes the channel broken."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, limit: int, health: Health) -> None:
        self._inner = inner
        self._limit = limit
        self._health = health

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send `request`; failures become responses, which the SDK maps to errors of this request only."""
        if request.method == "GET" and "last-event-id" not in request.headers:
            # The stream for the server's own requests: none of them is of use here.
            return httpx2.Response(405)
        dispatch = CURRENT.get() if request.method == "POST" else None
        request.extensions = {**request.extensions, **_extensions(request, dispatch)}
        try:
            response = await self._inner.handle_async_request(request)
        except NotSent:
            return httpx2.Response(503)
        except httpx2.TransportError as error:
            self._health.fail(f"HTTP {type(error).__name__}")
            return httpx2.Response(503)
        if dispatch is not None and response.status_code != 200:
            self._health.fail(f"HTTP status {response.status_code}")
        elif response.status_code >= 300:
            self._health.problem = f"HTTP status {response.status_code}"
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            return httpx2.Response(502)
        # An event stream may be longer; the SDK bounds each of its events.
        whole = response.headers.get("content-type", "").startswith("application/json")
        response.stream = _Bounded(response, self._limit if whole else None, self._health)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


def _extensions(request: httpx2.Request, dispatch: Dispatch | None) -> dict[str, Any]:
    timeout = dict(request.extensions.get("timeout", {}))
    if request.method == "DELETE":
        return {"timeout": {**timeout, "connect": GOODBYE_SECONDS, "read": GOODBYE_SECONDS}}
    if request.method == "GET":
        return {"timeout": {**timeout, "read": None}}
    if dispatch is None:
        return {}

    async def trace(event: str, _: dict[str, Any]) -> None:
        # The connection is there; the next thing that httpcore does is to write the first byte.
        if event == "http11.send_request_headers.started":
            dispatch.hand_over()
        elif event == "http11.send_request_body.complete":
            reach("dispatch.sent")

    return {"timeout": {**timeout, "read": None, "write": None}, "trace": trace}


class _Bounded(httpx2.AsyncByteStream):
    """A body of at most `limit` bytes; a lost connection becomes an error that the SDK expects here."""

    def __init__(self, response: httpx2.Response, limit: int | None, health: Health) -> None:
        self._stream = response.stream
        self._limit = limit
        self._health = health

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        if not isinstance(self._stream, httpx2.AsyncByteStream):
            raise httpx2.StreamError("the response has no stream")
        try:
            async for chunk in self._stream:
                size += len(chunk)
                if self._limit is not None and size > self._limit:
                    raise httpx2.StreamError("the reply is too long")
                yield chunk
        except httpx2.TransportError:
            self._health.fail("HTTP connection lost")
            raise httpx2.StreamError("the connection was lost") from None

    async def aclose(self) -> None:
        if isinstance(self._stream, httpx2.AsyncByteStream):
            await self._stream.aclose()
