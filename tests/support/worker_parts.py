"""Parts of a worker in the test's own loop: a real store, real claims, and a router that the test decides."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from ledger.attempts import Work
from ledger.config import Config
from ledger.declared import LivePolicy
from ledger.ownership import claim_sessions
from ledger.policy import from_config
from ledger.store import AsyncStore, StoreSettings
from tests.support.direct import Direct, shard_of
from workers.following import Following
from workers.handlers.host import HandlerHost
from workers.owner import SessionOwner
from workers.settings import begin_policy, worker_settings
from workers.shared import Shared
from workers.tools.results import CallContext, ToolReply, Verdict, not_executed


class CountingRouter:
    """A tool that does what a transport does: asks the last check, then has its effect. `calls` holds the effects."""

    def __init__(self, reply: Callable[[CallContext], ToolReply] | None = None) -> None:
        self.calls: list[dict[str, Any]] = []
        self.refused: list[str] = []
        self._reply = reply

    async def call(self, tool: str, arguments: dict[str, Any], context: CallContext) -> ToolReply:
        """One effect, unless the last check says no."""
        reason = context.last_check()
        if reason is not None:
            self.refused.append(reason)
            return not_executed(reason)
        self.calls.append(arguments)
        return self._reply(context) if self._reply is not None else ToolReply(Verdict.COMPLETED)


@asynccontextmanager
async def parts(url: str, router: CountingRouter, **timing: float) -> AsyncIterator[Shared]:
    """What the sessions of one worker share."""
    config = Config.model_validate({"redis": {"url": url}, "timing": timing, "workers": {"linger_seconds": 0.2}})
    policy = from_config(config).extended(mutation_tools=frozenset({"pay"}))
    settings = worker_settings(config)
    store = AsyncStore(StoreSettings(config.redis, wait_seconds=min(settings.checkpoint_wait, 2.0)))
    await store.open()
    live = LivePolicy(policy)
    shared = Shared(
        store=store,
        router=router,
        policy=policy,
        following=Following(store, live, begin_policy(config, policy)),
        settings=settings,
        stopping=asyncio.Event(),
        handlers=HandlerHost(config, live, {}, lambda tool: True),
    )
    try:
        yield shared
    finally:
        shared.handlers.close()
        await store.close()


def admitter(url: str, shared: Shared) -> Direct:
    """Admits deliveries under the worker's own policy."""
    return Direct(url, policy_digest=shared.policy.digest)


async def claim(shared: Shared, session: str) -> tuple[SessionOwner, Work, float]:
    """Claims the one ready session of its shard: its owner, its first work, and when that was asked for."""
    shard = shard_of(session)
    asked_at = time.monotonic()
    call = claim_sessions(shard, f"1x{secrets.token_hex(8)}", 8, shared.following.begin(shard))
    (claimed,) = (await shared.store.run(call)).sessions
    owner = SessionOwner(shared, shard, claimed.sid, claimed.token, lease_from=asked_at)
    return owner, claimed.work, asked_at
