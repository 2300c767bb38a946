"""Running the steps of several actors in every order that keeps each actor's own, on one prepared store."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import redis

from ledger.attempts import Begun, Work
from ledger.errors import Refused
from ledger.ownership import Claimed
from tests.support.ledger import Ledger

Order = tuple[int, ...]
"""Which actor makes the next step, step after step."""


def orders(*steps: int) -> list[Order]:
    """Every order of actors with so many steps each."""
    places = [actor for actor, count in enumerate(steps) for _ in range(count)]
    return sorted(set(_distinct(places)))


def _distinct(places: Sequence[int]) -> Iterator[Order]:
    if not places:
        yield ()
    for first in sorted(set(places)):
        rest = list(places)
        rest.remove(first)
        for order in _distinct(rest):
            yield (first, *order)


def some(every: list[Order], most: int, seed: int) -> list[Order]:
    """At most so many of them, the same for the same seed."""
    return every if len(every) <= most else random.Random(seed).sample(every, most)


def emptied(url: str) -> Ledger:
    """A ledger on a store that was emptied before anybody looked at it."""
    client: Any = redis.Redis.from_url(url)
    client.flushall()
    client.close()
    return Ledger(url)


class Prepared:
    """A store as it is now, to begin from again and again."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Any = redis.Redis.from_url(url)
        keys = list(self._client.scan_iter(count=1000))
        self._saved = [(key, self._client.dump(key), self._client.pexpiretime(key)) for key in keys]

    def again(self) -> Ledger:
        """The store as it was, and a process that has seen nothing after it."""
        pipe = self._client.pipeline()
        pipe.flushall()
        for key, value, expires in self._saved:
            pipe.restore(key, max(expires, 0), value, absttl=expires > 0)
        pipe.execute()
        return Ledger(self._url)

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()


class Worker:
    """One worker, a step at a time: claims, else settles what is in flight and begins the next call."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._held: list[tuple[Claimed, Begun]] = []
        self._nonces = (f"interleaved-{n}" for n in itertools.count())
        self.begun: list[Begun] = []

    def step(self) -> None:
        """One step; nothing to do is a step too."""
        if self._held:
            claimed, work = self._held.pop(0)
            try:
                settled = self._ledger.settle(work, claimed.token, next_step=work.step + 1)
            except Refused as refused:
                if refused.code != "attempt_mismatch":  # its session was erased meanwhile
                    raise
            else:
                self._take(claimed, settled.work)
            return
        for claimed in self._ledger.claim(next(self._nonces), 1):
            self._take(claimed, claimed.work)

    def drain(self) -> None:
        """Works until there is nothing left."""
        for _ in range(200):
            before = len(self.begun)
            self.step()
            if not self._held and len(self.begun) == before and not self._ledger.claimable():
                return
        raise AssertionError("the work does not come to an end")

    def _take(self, claimed: Claimed, work: Work | None) -> None:
        if isinstance(work, Begun):
            self.begun.append(work)
            self._held.append((claimed, work))
