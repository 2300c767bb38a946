"""Credentials in text: found, also where they are disguised, and cut out (C-103)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from ledger.sanitise.characters import drop_invisible
from ledger.sanitise.patterns import PATTERNS

MARK = "[redacted]"

_MAX_DECODINGS = 8
_MAX_REDACTIONS = 4
_PERCENT = re.compile(r"%[0-9A-Fa-f]{2}")


def contains_credential(text: str) -> bool:
    """Whether `text`, or a copy of it without format characters or percent-encoding, holds a credential.

    Text encoded more often than anybody does by accident cannot be judged and counts as one.
    """
    try:
        return any(map(_matches, _copies(text)))
    except _Unjudgeable:
        return True


def redacted(text: str) -> str | None:
    """`text` with each credential replaced by `MARK`; None if that cannot be done.

    Where only a copy shows the credential, the copy is what is redacted and returned.
    """
    for _ in range(_MAX_REDACTIONS):
        try:
            telling = next(filter(_matches, _copies(text)), None)
        except _Unjudgeable:
            return None
        if telling is None:
            return text
        for pattern in PATTERNS:
            telling = pattern.replace(telling, MARK)
        text = telling
    return None


class _Unjudgeable(Exception):
    """The text is wrapped in more layers of encoding than are unwrapped."""


def _copies(text: str) -> Iterator[str]:
    yield text
    copy = drop_invisible(text)
    if copy != text:
        yield copy
    for _ in range(_MAX_DECODINGS):
        if not _PERCENT.search(copy):
            return
        copy = drop_invisible(unquote(copy))
        yield copy
    raise _Unjudgeable


def _matches(text: str) -> bool:
    folded = text.casefold()
    for pattern in PATTERNS:
        for hint in pattern.hints:
            if hint in folded:
                if pattern.found(text):
                    return True
                break
    return False
