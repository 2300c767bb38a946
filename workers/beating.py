"""This worker's heartbeat: which policy it follows, and whether that is the store's (C-05)."""

from __future__ import annotations

import asyncio
import secrets

import structlog

from ledger.agreement import BEAT_SECONDS, Agreement, beat_policy, leave_policy
from ledger.errors import LedgerError
from workers.shared import Shared

log = structlog.get_logger(__name__)


class PolicyBeat:
    """Beats until the worker stops, then says goodbye.

    A worker with another policy works on: begin resolves each call again and the stricter answer wins.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._process = secrets.token_hex(8)
        self._told: Agreement | None = None

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            while True:
                await self._beat()
                await asyncio.sleep(BEAT_SECONDS)
        finally:
            await self._leave()

    async def _beat(self) -> None:
        try:
            agreement = await self._shared.store.run(beat_policy(self._shared.policy, self._process))
        except LedgerError as error:
            log.warning("policy_beat", code=error.code)
            return
        if not agreement.agreed and agreement != self._told:
            log.warning("policy_differs", differences=agreement.differences)
        self._told = agreement

    async def _leave(self) -> None:
        try:
            await self._shared.store.run(leave_policy(self._shared.policy, self._process))
        except LedgerError as error:
            log.info("policy_not_left", code=error.code)
