"""Reading sessions: the history of outcomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledger.history import outcomes, read_session
from ledger.identity import check_session_id
from ledger.records import Session
from ledger.store import ScriptCall


class SessionManager:
    """Sessions of one tenant, read from the store; reached as `Engine.sessions`."""

    def __init__(self, run: Callable[[ScriptCall[Session | None]], Session | None], tenant: str, shards: int) -> None:
        self._run = run
        self._tenant = tenant
        self._shards = shards

    def mutation_outcomes(self, session_key: str) -> list[dict[str, Any]]:
        """Every retained outcome, oldest logical turn first, in a turn by first intent; empty if there are none.

        Raises InvalidRequest for a key that names no session, and what the store raises.
        """
        return outcomes(self._run(read_session(self._tenant, check_session_id(session_key), self._shards)))
