"""Waiting for the end of a run, and following its journal (C-61, C-112). Answers only from what was read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from ledger.admission import Admitted
from ledger.errors import LedgerError, Refused, StoreUnavailable
from ledger.faultpoints import reach
from ledger.records import Run
from ledger.runs import JournalPage, read_journal, read_run
from service.door import FrontDoor
from service.present import event_object, run_object
from service.streams import HEARTBEAT, Frame
from service.waiting import TICK_SECONDS

HEARTBEAT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Place:
    """Which run, and whose."""

    shard: int
    run_id: str
    tenant: str


def get_run(door: FrontDoor, place: Place) -> Run:
    """The run as stored now; reading it may write an expiry, which may want a worker (C-41).

    Raises:
        Refused: not_found.
        StoreError: the store cannot tell now.
    """
    reply = door.store.run(read_run(place.shard, place.run_id, place.tenant))
    door.wake(reply.wake)
    if reply.run is None:
        raise Refused("no such run", code="not_found")
    return reply.run


def get_journal(door: FrontDoor, place: Place, after: int) -> JournalPage:
    """The journal's events after a position; raises as `get_run`."""
    page = door.store.run(read_journal(place.shard, place.run_id, place.tenant, after))
    if not page.known:
        raise Refused("no such run", code="not_found")
    return page


def wait_for_end(door: FrontDoor, place: Place, admitted: Admitted, seconds: float) -> Run:
    """The run as read last: ended, or as it was when `seconds` were over or the process stops.

    A store that is away meanwhile changes nothing of what was read before.
    """
    if admitted.ended:
        return admitted.run
    run: Run | None = None
    end = time.monotonic() + seconds
    # What admission answered was read from the store, so nothing is read before something was heard.
    with door.hub.watch_end(place.run_id) as hint:
        while run is None or not run.status.ended:
            left = end - time.monotonic()
            hint.wait(max(0.0, min(TICK_SECONDS, left)))
            hint.clear()
            with suppress(StoreUnavailable, Refused):
                run = get_run(door, place)
            if left <= 0 or door.stopping.is_set():
                break
    return run or admitted.run


def journal_frames(door: FrontDoor, place: Place, after: int, *, follow: bool, closing: str) -> Iterator[Frame]:
    """The run's events after a position and, once it has ended, the run itself in a frame named `closing` (C-62).

    Without `follow` it stops at what is stored now. With it, it goes on over an absent store. It ends with a frame
    `error` when the store cannot be trusted or forgot the run. An event of the name `closing` is not told by itself:
    the last frame takes its place.
    """
    try:
        seen = after
        for page in _pages(door, place, after, follow=follow):
            if page is None:
                yield (HEARTBEAT, None, None)
                continue
            for event in page.events:
                seen = event.number
                if event.type != closing:
                    reach("publish.due")
                    yield (event.type, seen, event_object(place.run_id, event))
            if page.ended and seen >= page.length:
                run = _ended_run(door, place)
                if run is not None:
                    reach("publish.due")
                    yield (closing, page.length, {"n": page.length, "type": closing, **run_object(run)})
                return
    except LedgerError as error:
        yield ("error", None, {"type": "error", "code": error.code})


def _pages(door: FrontDoor, place: Place, after: int, *, follow: bool) -> Iterator[JournalPage | None]:
    """Pages with something new. None is said at once if there is nothing, and to keep a quiet stream alive."""
    position, spoke_at = after, float("-inf")
    with door.hub.watch(place.run_id) as hint:
        while not door.stopping.is_set():
            hint.clear()
            page = _page_if_there(door, place, position, follow=follow)
            if page is not None and (page.events or page.ended):
                position += len(page.events)
                spoke_at = time.monotonic()
                yield page
                if position < page.length:
                    continue
            if not follow:
                return
            if time.monotonic() - spoke_at >= HEARTBEAT_SECONDS:
                spoke_at = time.monotonic()
                yield None
            hint.wait(TICK_SECONDS)


def _page_if_there(door: FrontDoor, place: Place, position: int, *, follow: bool) -> JournalPage | None:
    """A follower stays connected while the store is away."""
    try:
        return get_journal(door, place, position)
    except StoreUnavailable:
        if not follow:
            raise
        return None


def _ended_run(door: FrontDoor, place: Place) -> Run | None:
    """The ended run, however long the store is away; None when this process stops first."""
    while not door.stopping.is_set():
        try:
            return get_run(door, place)
        except StoreUnavailable:
            door.stopping.wait(TICK_SECONDS)
    return None
