"""Store time (integer milliseconds) to the text shown to people and programs."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(milliseconds: int | float) -> str:
    """`2026-11-30T23:24:00.123Z` for a store time in milliseconds."""
    moment = datetime.fromtimestamp(int(milliseconds) / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def optional(milliseconds: int | float | None) -> str | None:
    """`rfc3339`, or None for None."""
    return None if milliseconds is None else rfc3339(milliseconds)
