"""MessagePack between Python and the scripts, and the format byte of stored records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgpack

from ledger.errors import StoreError
from ledger.store.layouts import LAYOUTS

FORMAT = b"\x01"
"""First byte of every packed record; a newer one is refused, never guessed at."""


def pack(value: Any) -> bytes:
    """Packs a script's request. Strings and bytes both become raw strings, which is all Lua knows."""
    packed: bytes = msgpack.packb(value, use_bin_type=False)
    return packed


def unpack(data: bytes) -> Any:
    """Unpacks a script's answer. Text is `str`; raw ids come back through `raw`."""
    return msgpack.unpackb(data, raw=False, unicode_errors="surrogateescape", strict_map_key=False)


def unpack_record(layout: str, data: bytes) -> dict[str, Any]:
    """A stored record of a layout; what it does not have is left out.

    Raises:
        StoreError: code `format_too_new` when a newer version of this package wrote it.
    """
    if data[:1] != FORMAT:
        raise StoreError(
            "a newer version of mutation-ledger wrote this record: update this process", code="format_too_new"
        )
    found = LAYOUTS[layout]
    count = len(found.fixed) + (found.rare is not None)
    # With an array's head before them the values are read in one piece.
    values = unpack(b"\xdc" + count.to_bytes(2, "big") + data[1:])
    record = {name: value for name, value in zip(found.fixed, values, strict=False) if value is not None}
    return record | values[-1] if found.rare is not None and values[-1] else record


def pack_record(layout: str, record: Mapping[str, Any]) -> bytes:
    """A record as scripts store it; ids that `unpack` read as text become raw again.

    Raises:
        ValueError: the layout has no place for one of the values.
    """
    found = LAYOUTS[layout]
    if unknown := sorted(set(record) - set(found.names)):
        raise ValueError(f"a {layout} record has no {', '.join(unknown)}")
    rest = {name: record[name] for name in found.rare or () if record.get(name) is not None}
    values = [*(record.get(name) for name in found.fixed), *([rest or None] if found.rare is not None else [])]
    packed = (msgpack.packb(value, use_bin_type=False, unicode_errors="surrogateescape") for value in values)
    return FORMAT + b"".join(packed)


def pack_values(values: Sequence[Any]) -> bytes:
    """Packs a request that has a layout: its values in the layout's order, strings and bytes as raw strings."""
    packed: bytes = msgpack.packb(values, use_bin_type=False)
    return FORMAT + packed[1 if len(values) < 16 else 3 :]


def raw(text: str) -> bytes:
    """The bytes of a raw id that `unpack` returned as text."""
    return text.encode("utf-8", "surrogateescape")
