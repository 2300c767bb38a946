"""Framing of streams (NDJSON, SSE) and the bound on how many are open (C-71)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flask import Response

from ledger.errors import LedgerError
from service.incoming import NDJSON
from service.jsonio import dump

Frame = tuple[str, int | None, Any]
"""Event name, its number if it has one, and its JSON value; the name `heartbeat` keeps a stream alive."""

HEARTBEAT = "heartbeat"
# Proxies must neither keep nor gather what is meant to arrive at once.
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class TooManyStreams(LedgerError):
    """This process holds as many streams as it may."""

    code = "too_many_streams"
    retryable = True


class StreamSlots:
    """Counts open streams of this process; `changed` is told the number after each change."""

    def __init__(self, most: int, changed: Callable[[int], None]) -> None:
        self._most = most
        self._changed = changed
        self._open = 0
        self._lock = threading.Lock()

    def take(self) -> Callable[[], None]:
        """Takes a slot and returns how to give it back; giving back twice does nothing.

        Raises:
            TooManyStreams: none is free.
        """
        with self._lock:
            if self._open >= self._most:
                raise TooManyStreams(f"{self._most} streams are open here")
            self._add(1)
        held = True

        def release() -> None:
            nonlocal held
            with self._lock:
                if held:
                    held = False
                    self._add(-1)

        return release

    def _add(self, by: int) -> None:
        self._open += by
        self._changed(self._open)


def ndjson(frames: Iterable[Frame]) -> Iterator[str]:
    """One JSON object a line; a heartbeat is `{"type":"heartbeat"}`."""
    for name, _, value in frames:
        yield dump({"type": HEARTBEAT} if name == HEARTBEAT else value) + "\n"


def sse(frames: Iterable[Frame]) -> Iterator[str]:
    """Server-sent events; a heartbeat is a comment."""
    for name, number, value in frames:
        if name == HEARTBEAT:
            yield ":\n\n"
        else:
            place = "" if number is None else f"id: {number}\n"
            yield f"{place}event: {name}\ndata: {dump(value)}\n\n"


def stream_response(form: str, frames: Iterable[Frame], release: Callable[[], None] | None = None) -> Response:
    """A streaming response in the form asked for. `release` is called when it ends, also before its first byte."""
    text = ndjson(frames) if form == NDJSON else sse(frames)
    response = Response(text, content_type=form, headers=HEADERS)
    if release is not None:
        response.call_on_close(release)
    return response
