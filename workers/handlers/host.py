"""What all handlers of a worker share: the registered functions, their threads and places, and how calls are judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from ledger.config import Config
from ledger.declared import LivePolicy
from ledger.handlers import HandlerCall
from ledger.identity import check_tool_name
from ledger.ids import new_id
from ledger.long_integers import read_json
from ledger.plugins import TurnHandler
from ledger.states import CallStatus
from ledger.strict_json import check_arguments
from workers.handlers.gate import Gate
from workers.handlers.places import Places
from workers.handlers.results import CallRefused, CallResult
from workers.tools.pool import DaemonPool
from workers.tools.results import UNKNOWN_TOOL

log = structlog.get_logger(__name__)


class HandlerHost:
    """`knows` says whether a canonical tool name can be routed here."""

    def __init__(
        self, config: Config, live: LivePolicy, handlers: Mapping[str, TurnHandler], knows: Callable[[str], bool]
    ) -> None:
        self.handlers = handlers
        self.max_pending_approvals = config.service.max_pending_approvals
        self.approval_ms = int(config.policy.approval_timeout_seconds * 1000)
        self.drain_seconds = config.timing.cancel_drain_seconds
        self.pool = DaemonPool(config.workers.max_sync_handlers, "turn-handler")
        self.places = Places(
            config.workers.max_parked,
            config.workers.max_sync_handlers,
            frozenset(name for name, handler in handlers.items() if not handler.asynchronous),
            frozenset(name for name, handler in handlers.items() if handler.replayable),
        )
        self.gate = Gate(config.workers.concurrency)
        self._live = live
        self._knows = knows
        self._max_bytes = config.service.max_argument_bytes
        self._warned: set[str] = set()

    def prepare(self, shard: int, tool: str, arguments: object, ordinal: int) -> HandlerCall:
        """A handler's call: checked, named and resolved by this worker's policy (C-02, C-03, C-05).

        Raises InvalidRequest, CallRefused (unknown_tool).
        """
        text = check_arguments(arguments, max_bytes=self._max_bytes)
        # Resolved on what is stored: the handler's own object may change meanwhile.
        policy = self._live.policy
        found = policy.resolve(check_tool_name(tool), read_json(text))
        call = HandlerCall(
            ordinal=ordinal,
            tool=found.tool,
            arguments=text,
            protected=found.protected,
            level=found.level,
            rule=found.rule,
            budget_eligible=found.budget_eligible,
            approval_id=new_id(shard),
        )
        if not self._knows(found.tool):
            raise refusal(call, UNKNOWN_TOOL)
        if not found.protected and policy.warns_about(found.tool):
            self._warn_unprotected(found.tool)
        return call

    def _warn_unprotected(self, tool: str) -> None:
        """The one warning of C-06 for a tool; never arguments."""
        if tool not in self._warned:
            self._warned.add(tool)
            log.warning("unprotected_mcp_tool", tool=tool, protect_with="register_mutation_tools")

    def close(self) -> None:
        """Idle threads end; busy ones are left to their handlers."""
        self.pool.close()


def refusal(call: HandlerCall, code: str) -> CallRefused:
    """A refusal that left nothing in the ledger."""
    result = CallResult(call.tool, call.mutation_id, CallStatus.REFUSED, refusal=code)
    return CallRefused(code, result)
