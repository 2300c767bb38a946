"""The script calls of readbacks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ledger.readbacks.answers import ReadbackRequest
from ledger.store.call import ScriptCall
from ledger.store.codec import pack, raw, unpack


@dataclass(frozen=True, slots=True)
class Question:
    """One mutation taken for a process to ask about; `token` is good until the hold is over or somebody answered."""

    token: str
    sid: str
    request: ReadbackRequest


@dataclass(frozen=True, slots=True)
class Evidence:
    """An answer as it is noted: `by` who or what answered, `answer` one of completed, not_executed, unknown."""

    token: str
    by: str
    answer: Literal["completed", "not_executed", "unknown"]
    note: str

    @property
    def packed(self) -> dict[str, str]:
        """As scripts take it."""
        return {"k": self.token, "by": self.by, "an": _CODES[self.answer], "no": self.note}


_CODES = {"completed": "c", "not_executed": "a", "unknown": "u"}


@dataclass(frozen=True, slots=True)
class Claimed:
    """Questions of one shard, and how many entries of each tool to pass over the next time."""

    questions: tuple[Question, ...]
    skip: tuple[int, ...]


def claim_readbacks(
    shard: int,
    nonce: str,
    tools: Sequence[str],
    skip: Sequence[int],
    *,
    most: int,
    hold_ms: int,
    max_tries: int,
    ends_at: float,
    tenant: str | None = None,
) -> ScriptCall[Claimed]:
    """Takes up to `most` unknown outcomes of `tools` that may be asked about now; nobody else gets them for `hold_ms`.

    `ends_at` is the deadline that their requests will carry.
    """
    request = {
        "no": nonce,
        "tn": tenant,
        "tools": list(tools),
        "skip": list(skip),
        "mx": most,
        "hd": hold_ms,
        "cap": max_tries,
    }

    def decode(reply: list[Any]) -> Claimed:
        return Claimed(tuple(_question(packed, ends_at) for packed in reply[1]), tuple(reply[2]))

    return ScriptCall.of("claim_readbacks", shard, pack(request), decode=decode)


def note_readback(
    shard: int, question: Question, evidence: Evidence, *, pause_ms: int, max_tries: int
) -> ScriptCall[Literal["noted", "repeated"]]:
    """Notes an answer that settles nothing; asked again after `pause_ms`, unless this was the last try.

    Raises when run, Refused (readback_over): nobody waits for this answer any more.
    """
    asked = question.request
    request = {
        "sid": question.sid,
        "t": asked.logical_turn_id,
        "m": bytes.fromhex(asked.mutation_id),
        "at": asked.attempt,
        "rb": evidence.packed,
        "pz": pause_ms,
        "cap": max_tries,
    }
    return ScriptCall.of("note_readback", shard, pack(request), decode=lambda reply: reply[1].decode())


def _question(packed: bytes, ends_at: float) -> Question:
    q = unpack(packed)
    request = ReadbackRequest(
        tool=q["tl"],
        arguments=json.loads(q["args"]) if q["args"] else None,
        mutation_id=raw(q["m"]).hex(),
        logical_turn_id=q["t"],
        attempt=q["at"],
        metadata=json.loads(q["md"]) if q["md"] else None,
        tenant=q["tn"],
        session_id=q["s"],
        agent=q["a"],
        user=q["u"],
        attempt_number=q["n"],
        deadline_monotonic=ends_at,
    )
    return Question(q["k"], q["sid"], request)
