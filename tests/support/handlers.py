"""A handler's part in the ledger: started, asking for calls, ended; for tests without a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ledger.attempts import Work
from ledger.handlers import (
    CallReport,
    Ended,
    HandlerCall,
    HandlerOffer,
    HandlerStart,
    Watched,
    end_handler,
    handler_input,
    propose_call,
    watch_handlers,
)
from ledger.ids import new_id
from ledger.ownership import claim_sessions
from ledger.records import Run
from ledger.store import ScriptCall
from ledger.strict_json import check_arguments
from tests.support.ledger import POLICY, SHARD, TOOL, Ledger

NAME = "story"
OFFER = HandlerOffer(handlers=8, sync=8)


@dataclass(frozen=True, slots=True)
class Owned:
    """A handler run in its owner's hands."""

    ledger: Ledger
    start: HandlerStart
    token: str

    def proposal(
        self,
        ordinal: int,
        n: int = 0,
        *,
        protected: bool = True,
        level: str | None = None,
        rule: str | None = None,
        eligible: bool = False,
        pending: int = 100,
        approval_ms: int = 60_000,
    ) -> ScriptCall[CallReport]:
        """The handler's `ordinal`-th call; `n` makes its arguments distinct."""
        arguments = check_arguments({"title": f"marker-{n}", "n": n})
        call = HandlerCall(ordinal, TOOL, arguments, protected, level, rule, eligible, new_id(SHARD))
        return propose_call(
            SHARD,
            self.start.sid,
            self.token,
            self.start.run_id,
            call,
            policy_digest=POLICY.digest,
            approval_ms=approval_ms,
            max_pending_approvals=pending,
        )

    def propose(self, ordinal: int, n: int = 0, **options: Any) -> CallReport:
        """Sends `proposal`."""
        return self.ledger.run(self.proposal(ordinal, n, **options))

    def begin(self, step: int, **options: Any) -> Work:
        """The owner asks for what is next."""
        return self.ledger.begin(self.start.sid, self.token, step, offer=OFFER, **options)

    def watching(self, index: int = -1) -> ScriptCall[Watched]:
        """What became of a call, or of the run."""
        return watch_handlers(SHARD, self.start.sid, self.token, [(self.start.run_id, index)])

    def watch(self, index: int = -1) -> CallReport | str:
        """Sends `watching`; the one answer."""
        (answer,) = self.ledger.run(self.watching(index)).answers
        return answer

    def ending(self, *, failed: bool = False, **options: Any) -> ScriptCall[Ended]:
        """The handler has returned."""
        return end_handler(SHARD, self.start.sid, self.token, self.start.run_id, failed=failed, **options)


def admit(ledger: Ledger, *, text: str = "marker-input", **options: Any) -> Run:
    """Admits a delivery for the handler."""
    return ledger.admit([], handler=NAME, input_json=handler_input(text, {"n": 1}), **options).run


def start(ledger: Ledger, *, replayable: bool = False) -> Owned:
    """Claims the one ready session and starts its handler."""
    offer = HandlerOffer(8, 8, frozenset(), frozenset({NAME}) if replayable else frozenset())
    nonce = f"h{ledger.now()}-{ledger.raw.get('ml:{00}:fence').decode()}"
    (claimed,) = ledger.run(claim_sessions(SHARD, nonce, 16, POLICY, awake=False, offer=offer)).sessions
    assert isinstance(claimed.work, HandlerStart), claimed.work
    return Owned(ledger, claimed.work, claimed.token)


def report(answer: CallReport | str) -> CallReport:
    """The answer, which must be a report."""
    assert isinstance(answer, CallReport), answer
    return answer
