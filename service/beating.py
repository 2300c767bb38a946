"""This front door's heartbeat: which policy it follows, and whether that is the store's (C-05)."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable

import structlog

from ledger.agreement import BEAT_SECONDS, beat_policy, leave_policy
from ledger.errors import LedgerError
from ledger.policy import Policy
from ledger.store import SyncStore

log = structlog.get_logger(__name__)

WATCH_SECONDS = 1.0


class PolicyDiffers(LedgerError):
    """Living processes follow another policy; this one takes over when the last of them is gone."""

    code = "policy_differs"
    retryable = True


class PolicyBeat:
    """Beats in a thread of its own once started, which is in the process that serves, after any fork."""

    def __init__(self, store: Callable[[], SyncStore], policy: Policy, stopping: threading.Event) -> None:
        self._store = store
        self._policy = policy
        self._stopping = stopping
        self._process = secrets.token_hex(8)

    def start(self) -> None:
        """Beats until the process stops, then says goodbye."""
        threading.Thread(target=self._run, name="policy-beat", daemon=True).start()

    def check(self) -> None:
        """One beat.

        Raises:
            PolicyDiffers: naming what differs.
            StoreError: the store cannot tell now.
        """
        agreement = self._store().run(beat_policy(self._policy, self._process))
        if not agreement.agreed:
            text = "; ".join(agreement.differences)
            members = {"differences": list(agreement.differences)}
            raise PolicyDiffers(f"living processes follow another policy: {text}", members=members)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.check()
            except LedgerError as error:
                log.warning("policy_beat", code=error.code)
            self._keep_watch()
        self._leave()

    def _keep_watch(self) -> None:
        """Until the next beat: a store that was replaced hears soon what this process knows to be missing (C-27)."""
        until = time.monotonic() + BEAT_SECONDS
        while time.monotonic() < until and not self._stopping.wait(WATCH_SECONDS):
            try:
                self._store().keep_watch()
            except LedgerError as error:
                log.warning("store_watch", code=error.code)

    def _leave(self) -> None:
        try:
            self._store().run(leave_policy(self._policy, self._process))
        except LedgerError as error:
            log.info("policy_not_left", code=error.code)
