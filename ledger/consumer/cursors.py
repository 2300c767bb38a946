"""Where a consumer stands in every shard, as a value, and what can keep it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Protocol

from ledger.errors import ConfigError

VERSION = 1
NOTHING_READ = "0-0"
_STREAM_ID = re.compile(r"\d{1,20}-\d{1,20}")


@dataclass(frozen=True, slots=True)
class Cursors:
    """The last stream id processed in each shard, by shard number, and the store that these ids belong to."""

    store_id: str
    positions: tuple[str, ...]

    def to_json(self) -> str:
        """One line of JSON; `from_json` reads it."""
        return json.dumps({"version": VERSION, "store": self.store_id, "shards": list(self.positions)})

    @classmethod
    def from_json(cls, text: str) -> Cursors:
        """Raises ConfigError if `text` is not what `to_json` wrote, `format_too_new` if a newer version wrote it."""
        newer = False
        try:
            data = json.loads(text)
            newer = type(data["version"]) is int and data["version"] > VERSION
            store_id, positions = data["store"], tuple(data["shards"])
            fits = data["version"] == VERSION and isinstance(store_id, str)
            fits = fits and all(_STREAM_ID.fullmatch(position) for position in positions)
        except (ValueError, KeyError, TypeError):
            fits = False
        if newer:
            raise ConfigError("a newer version saved this cursor: update this consumer", code="format_too_new")
        if not fits:
            raise ConfigError("the saved cursor is damaged: move it away and resynchronise")
        return cls(store_id, positions)


class CursorStore(Protocol):
    """Keeps one consumer's cursors. Both may block: an asynchronous consumer calls them in a thread."""

    def load(self) -> Cursors | None:
        """What was saved last, or None if nothing ever was."""

    def save(self, cursors: Cursors) -> None:
        """Keeps `cursors`; returns once they are safe."""


def id_key(stream_id: str) -> tuple[int, int]:
    """A stream id `<ms>-<n>` as something that compares in stream order."""
    milliseconds, _, number = stream_id.partition("-")
    return int(milliseconds), int(number or 0)
