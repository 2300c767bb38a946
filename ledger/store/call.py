"""A script call as a value: what to run, on which shard, and how to read its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ledger.store.scripts import SCRIPTS, Script

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ScriptCall(Generic[T]):
    """One script to run on one shard.

    `args` follow the store id and counter that every script takes first. `decode` turns the reply (a list whose first
    item is the shard's new counter, or -1 when nothing was written) into the caller's type. A call may be sent again
    as it is: every script answers a repeat the same (C-22). `told` is False if nobody is told what it answers.
    """

    script: Script
    shard: int
    args: tuple[bytes | str | int, ...]
    decode: Callable[[list[Any]], T]
    told: bool = True

    @classmethod
    def of(
        cls, name: str, shard: int, *args: bytes | str | int, decode: Callable[[list[Any]], T], told: bool = True
    ) -> ScriptCall[T]:
        """Builds a call of the script `name`."""
        return cls(SCRIPTS[name], shard, args, decode, told)
