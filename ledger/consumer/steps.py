"""What the core asks of whoever drives it: the only things that differ between `for` and `async for`."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ledger.consumer.cursors import Cursors
from ledger.consumer.outcome import Outcome

T = TypeVar("T")
Command = Sequence[bytes | str | int]
Address = tuple[str, int]
"""Host and port of a cluster node; an empty host is the host of the URL."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Send `commands` at once, answer all replies in order; error replies are answered, not raised.

    `node` None is the server that the URL names. Nothing is ever sent twice by the driver.
    """

    node: Address | None
    commands: Sequence[Command]


@dataclass(frozen=True, slots=True)
class Pause:
    """Let `seconds` pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Load:
    """Answer the saved cursors, or None."""


@dataclass(frozen=True, slots=True)
class Save:
    """Keep the cursors."""

    cursors: Cursors


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand outcomes to the caller; go on when it asks for more. `ends` is the last stream id of each shard in it."""

    outcomes: Sequence[Outcome]
    ends: Mapping[int, str]


Step = Exchange | Pause | Load | Save | Emit
Steps = Generator[Step, Any, T]
