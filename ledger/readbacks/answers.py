"""What a readback is asked and what it may answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

NOTE_MAX = 200


@dataclass(frozen=True, slots=True)
class ReadbackRequest:
    """A mutation whose outcome nobody knows. `attempt` names the dispatch that is asked about, `mutation_id` the call.

    `arguments` are those that were sent; None if they are not kept any more. `metadata` is what was attached so far.
    `attempt_number` counts questions about this attempt from 1. After `deadline_monotonic` (`time.monotonic`) the
    answer counts as unknown.
    """

    tool: str
    arguments: dict[str, Any] | None
    mutation_id: str
    logical_turn_id: str
    attempt: str
    metadata: Mapping[str, str] | None
    tenant: str
    session_id: str
    agent: str
    user: str
    attempt_number: int
    deadline_monotonic: float


@dataclass(frozen=True, slots=True)
class ReadbackAnswer:
    """What a look at the source of truth says; make one with `completed`, `not_executed` or `unknown`.

    `note` is evidence for people, kept with the entry: one line, at most 200 characters, never a secret. `metadata`
    are the five fields of `attach_mutation_metadata`.
    """

    outcome: Literal["completed", "not_executed", "unknown"]
    note: str = ""
    metadata: Mapping[str, str] | None = None

    @classmethod
    def completed(cls, *, metadata: Mapping[str, str] | None = None, note: str = "") -> ReadbackAnswer:
        """The effect was seen to be there."""
        return cls("completed", note, metadata)

    @classmethod
    def not_executed(cls, *, note: str = "") -> ReadbackAnswer:
        """It is certain that there is no effect and that none will come."""
        return cls("not_executed", note)

    @classmethod
    def unknown(cls, *, note: str = "") -> ReadbackAnswer:
        """Nobody can tell yet; it is asked again later."""
        return cls("unknown", note)


ReadbackHandler = Callable[[ReadbackRequest], Any]
"""`handler(request)`, sync or async, answering a `ReadbackAnswer`; anything else, or an error, means unknown."""


def one_line(note: object) -> str:
    """A note as it is kept: printable, one line, bounded."""
    text = "".join(c if c.isprintable() else " " for c in str(note)[: 4 * NOTE_MAX])
    return " ".join(text.split())[:NOTE_MAX]
