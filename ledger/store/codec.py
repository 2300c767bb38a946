"""MessagePack between Python and the scripts, and the format byte of stored records."""

from __future__ import annotations

from typing import Any

import msgpack

from ledger.errors import StoreError

FORMAT = b"\x01"
"""First byte of every packed record; a newer one is refused, never guessed at."""


def pack(value: Any) -> bytes:
    """Packs a script's request. Strings and bytes both become raw strings, which is all Lua knows."""
    packed: bytes = msgpack.packb(value, use_bin_type=False)
    return packed


def unpack(data: bytes) -> Any:
    """Unpacks a script's answer. Text is `str`; raw ids come back through `raw`."""
    return msgpack.unpackb(data, raw=False, unicode_errors="surrogateescape", strict_map_key=False)


def unpack_record(data: bytes) -> Any:
    """Unpacks a stored record.

    Raises:
        StoreError: code `format_too_new` when a newer version of this package wrote it.
    """
    if data[:1] != FORMAT:
        raise StoreError(
            "a newer version of mutation-ledger wrote this record: update this process", code="format_too_new"
        )
    return unpack(data[1:])


def raw(text: str) -> bytes:
    """The bytes of a raw id that `unpack` returned as text."""
    return text.encode("utf-8", "surrogateescape")
