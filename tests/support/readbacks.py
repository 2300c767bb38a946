"""Questions and answers of readbacks, by hand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

from ledger.attempts import Begun
from ledger.readbacks.calls import Claimed, Evidence, Question, claim_readbacks, note_readback
from ledger.reconciliation import Reconciled, reconcile_mutation
from ledger.store import ScriptCall
from tests.support.ledger import POLICY, SHARD, SHARDS, TOOL, UNKNOWN, Ledger, key, plan, sid_of

HOLD_MS = 30_000
TRIES = 3


def unknown(ledger: Ledger, session: str = "s1", **options: Any) -> Begun:
    """A mutation that nobody knows the outcome of, whose attempt can no longer be running."""
    ledger.admit(plan(1), session=session, **options)
    (claimed,) = ledger.claim()
    assert isinstance(claimed.work, Begun)
    ledger.settle(claimed.work, claimed.token, UNKNOWN, next_step=2)
    make_due(ledger, claimed.work)
    return claimed.work


def make_due(ledger: Ledger, work: Begun) -> None:
    """Its time has come: `not_after`, and when it may be asked about, lie behind."""
    raw = bytes.fromhex(work.mutation_id)
    ledger.rewrite(f"session:{sid_of(work.session_id)}", b"m1:" + raw, {"na": ledger.now() - 10})
    ledger.raw.zadd(index(), {member(work): ledger.now() - 1})


def index(tool: str = TOOL) -> str:
    """Where the unknown outcomes of a tool wait to be looked up."""
    return key(f"readback:{tool}")


def member(work: Begun) -> str:
    """How it is listed there."""
    return f"{sid_of(work.session_id)}:1:{work.mutation_id}"


def claim(nonce: str = "n1", tools: Sequence[str] = (TOOL,), **options: Any) -> ScriptCall[Claimed]:
    """Asks for questions."""
    named: dict[str, Any] = {"most": 4, "hold_ms": HOLD_MS, "max_tries": TRIES, "ends_at": time.monotonic(), **options}
    return claim_readbacks(SHARD, nonce, tools, named.pop("skip", [0] * len(tools)), **named)


def evidence(question: Question, answer: Literal["completed", "not_executed", "unknown"]) -> Evidence:
    """An answer."""
    return Evidence(question.token, "readback:look", answer, "seen in the books")


def note(question: Question, *, pause_ms: int = 5_000) -> ScriptCall[Literal["noted", "repeated"]]:
    """Nobody can tell yet."""
    return note_readback(SHARD, question, evidence(question, "unknown"), pause_ms=pause_ms, max_tries=TRIES)


def answered(question: Question, *, completed: bool, **options: Any) -> ScriptCall[Reconciled]:
    """It can."""
    asked = question.request
    return reconcile_mutation(
        asked.tenant,
        asked.session_id,
        asked.logical_turn_id,
        asked.mutation_id,
        completed=completed,
        by="readback:look",
        shards=SHARDS,
        answer=evidence(question, "completed" if completed else "not_executed"),
        attempt=asked.attempt,
        **options,
    )


__all__ = ["HOLD_MS", "POLICY", "TRIES"]
