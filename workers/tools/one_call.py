"""The SDK's dispatcher, with an id for the call that can be cancelled by name, and its result kept as it came."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context, ContextVar
from typing import Any

from mcp.shared.dispatcher import CallOptions
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import RequestId

from workers.tools.dispatch import Dispatch

# Far from the ids that the SDK gives to its own requests, which count up from one.
_IDS = itertools.count(1_000_000)

CURRENT: ContextVar[Dispatch | None] = ContextVar("current_dispatch", default=None)
"""The dispatch of the task that sends it; the SDK's transports pass the context on to their own tasks."""


class OneCallDispatcher(JSONRPCDispatcher):
    """What a `ClientSession` speaks through; requests other than the current `tools/call` pass unchanged."""

    def _spawn(self, fn: Callable[..., Awaitable[Any]], *args: object, sender_ctx: Context | None) -> None:
        """As in the SDK, but without the context of a call on whose reply stream the server asks something itself.

        Our answer is a request of its own over HTTP; with that context it would pass for the call, sent again.
        """
        super()._spawn(fn, *args, sender_ctx=None)

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
        *,
        _related_request_id: RequestId | None = None,
    ) -> dict[str, Any]:
        """As in the SDK; the result is kept in the current dispatch before anybody validates it."""
        dispatch = CURRENT.get()
        if dispatch is None or method != "tools/call":
            return await super().send_raw_request(method, params, opts, _related_request_id=_related_request_id)
        dispatch.request_id = next(_IDS)
        # The SDK's copy of long integers is plain, and its own log line could not show it (C-01).
        params = {**(params or {}), "arguments": dispatch.arguments}
        options: CallOptions = {**(opts or {}), "request_id": dispatch.request_id}
        # We cancel by ourselves, before the waiter is gone, so that a late result can still be drained.
        options["cancel_on_abandon"] = False
        dispatch.raw = await super().send_raw_request(method, params, options)
        return dispatch.raw
