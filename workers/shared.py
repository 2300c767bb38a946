"""What all sessions of a worker share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Protocol

from ledger.policy import Policy
from ledger.store import AsyncStore
from workers.following import Following
from workers.handlers.host import HandlerHost
from workers.settings import WorkerSettings
from workers.tally import Tally
from workers.tools.results import CallContext, ToolReply


class Router(Protocol):
    """What runs a tool; see `workers.tools.router.ToolRouter`."""

    async def call(self, tool: str, arguments: dict[str, Any], context: CallContext) -> ToolReply:
        """Runs one tool at most once and says what that proves."""


@dataclass(slots=True)
class Shared:
    """What all sessions of a worker share. `policy` is that of configuration and plugins alone.

    `past_drain`: a warm stop gives no call any more time (C-34).
    """

    store: AsyncStore
    router: Router
    policy: Policy
    following: Following
    settings: WorkerSettings
    stopping: asyncio.Event
    handlers: HandlerHost
    tally: Tally = field(default_factory=Tally)
    unlanded: int = 0
    past_drain: bool = False
