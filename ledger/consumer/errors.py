"""Why a consumer cannot go on from its cursor."""

from __future__ import annotations

from enum import StrEnum

from ledger.errors import LedgerError


class GapReason(StrEnum):
    """What made a cursor useless."""

    TRIMMED = "trimmed"  # the cursor is below the floor: outcomes after it were trimmed
    WENT_BACK = "went_back"  # the stream ends below the cursor: the store lost what was read before
    STORE_CHANGED = "store_changed"  # another store id: emptied, replaced, or accepted by a person (C-27)


_WORDS = {
    GapReason.TRIMMED: "outcomes after it were trimmed before they were read",
    GapReason.WENT_BACK: "the stream ends below it",
    GapReason.STORE_CHANGED: "the store is not the one it was saved for",
}


class CursorGap(LedgerError):
    """Outcomes may be missing: `resync()` reads them from history, then the streams go on (C-111).

    `finding` says what is wrong without the way out; `cursor` is the stream id that cannot go on in `shard`.
    """

    code = "cursor_gap"

    def __init__(self, reason: GapReason, shard: int, cursor: str) -> None:
        self.finding = f"the cursor {cursor} of shard {shard:02x} cannot go on: {_WORDS[reason]}"
        super().__init__(f"{self.finding}; read history with resync()")
        self.reason = reason
        self.shard = shard
        self.cursor = cursor
