"""Reading a server's append-only files: every write that it ever made durable, in order, as scripts did it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.support.audit import Seen


def commands(directory: Path) -> Iterator[list[bytes]]:
    """The commands of a server's incremental AOF, oldest first; a torn one at the end is left out."""
    folder = directory / "appendonlydir"
    for path in sorted(folder.glob("appendonly.aof.*.incr.aof"), key=_number):
        yield from parse(path.read_bytes())


def parse(data: bytes) -> Iterator[list[bytes]]:
    """Commands in the wire protocol; annotations are passed over."""
    at = 0
    while at < len(data):
        if data[at : at + 1] == b"#":
            at = data.index(b"\n", at) + 1
            continue
        words, at = _command(data, at)
        if words is None:
            return
        yield words


def _command(data: bytes, at: int) -> tuple[list[bytes] | None, int]:
    words: list[bytes] = []
    count, at = _integer(data, at)
    for _ in range(count or 0):
        size, at = _integer(data, at)
        if size is None or at + size + 2 > len(data):
            return None, at
        words.append(data[at : at + size])
        at += size + 2
    return (words, at) if count is not None else (None, at)


def _integer(data: bytes, at: int) -> tuple[int | None, int]:
    """The number after `*` or `$`."""
    end = data.find(b"\r\n", at)
    return (None, at) if end < 0 else (int(data[at + 1 : end]), end + 2)


def _number(path: Path) -> int:
    return int(path.name.split(".")[2])


def owners(directory: Path) -> Seen:
    """Every change of ownership and every intent in a server's history; `violations` must be empty (I5)."""
    # A replica's history begins with what its master held by then.
    bases = (directory / "appendonlydir").glob("appendonly.aof.*.base.aof")
    seen = Seen(partial=any(path.stat().st_size > 0 for path in bases))
    for words in commands(directory):
        if len(words) > 1 and b":session:" in words[1]:
            seen.read([word.decode("latin-1") for word in words])
    return seen
