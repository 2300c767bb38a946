"""The whole store as a value, so that a test can say "nothing changed" and mean every key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgpack

from ledger.store.codec import FORMAT

Snapshot = dict[str, tuple[str, Any, int]]
"""Key -> its type, its content in an order of its own, and the store ms at which it expires (-1: never)."""

_READ: dict[str, Callable[[Any, bytes], Any]] = {
    "string": lambda client, key: client.get(key),
    "hash": lambda client, key: dict(sorted(client.hgetall(key).items())),
    "list": lambda client, key: client.lrange(key, 0, -1),
    "zset": lambda client, key: client.zrange(key, 0, -1, withscores=True),
    "stream": lambda client, key: client.xrange(key),
    "set": lambda client, key: sorted(client.smembers(key)),
}


def take(client: Any, match: str = "*") -> Snapshot:
    """Every key of the store, or those that match.

    Contents with packed records opened, not DUMPs: the order of a table may differ.
    """
    snapshot: Snapshot = {}
    for key in client.scan_iter(match, count=1000):
        kind = client.type(key).decode()
        if kind != "none":
            name = key.decode("utf-8", "backslashreplace")
            snapshot[name] = (kind, _unpacked(_READ[kind](client, key)), client.pexpiretime(key))
    return snapshot


def differences(before: Snapshot, after: Snapshot) -> dict[str, tuple[Any, Any]]:
    """Keys that differ, with what they were and are; the counter `n` of a shard's seq hash does not count (C-22)."""
    keys = sorted(before.keys() | after.keys())
    pairs = {key: (_without_counter(key, before), _without_counter(key, after)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def values(snapshot: Snapshot) -> Iterator[tuple[str, bytes]]:
    """Every stored byte string with its key: names, fields, members and values."""
    for key, (_, content, _) in snapshot.items():
        yield key, key.encode()
        for value in _flat(content):
            yield key, value


def holders(snapshot: Snapshot, text: str) -> list[str]:
    """Keys in which `text` can be read."""
    wanted = text.encode()
    return sorted({key for key, value in values(snapshot) if wanted in value})


def _without_counter(key: str, snapshot: Snapshot) -> Any:
    found = snapshot.get(key)
    if found is None or not key.endswith(":seq"):
        return found
    kind, fields, expires = found
    return kind, {name: value for name, value in fields.items() if name != b"n"}, expires


def _unpacked(content: Any) -> Any:
    match content:
        case bytes() if content.startswith(FORMAT):
            try:
                return msgpack.unpackb(content[1:], raw=True, strict_map_key=False)
            except ValueError:
                return content
        case dict():
            return {name: _unpacked(value) for name, value in content.items()}
        case list() | tuple():
            return [_unpacked(item) for item in content]
        case _:
            return content


def _flat(content: Any) -> Iterator[bytes]:
    match content:
        case bytes():
            yield content
        case dict():
            for name, value in content.items():
                yield from _flat(name)
                yield from _flat(value)
        case list() | tuple():
            for item in content:
                yield from _flat(item)
        case _:
            return  # scores
