"""What a transport gives to a session: two streams, and a sign that it must be replaced."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp.shared.message import SessionMessage

if TYPE_CHECKING:
    # The SDK has no public name for these; at run time we do without.
    from mcp.client._transport import ReadStream, WriteStream


class Health:
    """`broken` is set when no further call may use the transport. `problem` is its last trouble, for logs."""

    def __init__(self) -> None:
        self.broken = asyncio.Event()
        self.problem: str | None = None

    def fail(self, problem: str) -> None:
        """The transport ended, or can no longer be trusted."""
        self.problem = self.problem or problem
        self.broken.set()


@dataclass(frozen=True, slots=True)
class Channel:
    """An open transport, in the form the SDK's session takes.

    `reply_stream_each`: each request has a reply stream of its own (HTTP), whose closing may mean a cancel.
    """

    reader: ReadStream[SessionMessage | Exception]
    writer: WriteStream[SessionMessage]
    health: Health
    reply_stream_each: bool = False
