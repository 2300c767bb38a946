"""Characters that change how text is read without being seen."""

from __future__ import annotations

import re

# C0, DEL and C1, the directional marks, embeddings, overrides and isolates, and the Unicode line separators.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f]")

# Unicode's format characters (Cf) and its other code points that are drawn as nothing.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def has_controls(text: str) -> bool:
    """Whether `text` holds a control character: C0, DEL, C1, bidi or a Unicode line separator (C-102)."""
    return not (text.isascii() and text.isprintable()) and _CONTROLS.search(text) is not None


def drop_controls(text: str) -> str:
    """`text` without its control characters (C-102)."""
    return _CONTROLS.sub("", text) if has_controls(text) else text


def drop_invisible(text: str) -> str:
    """`text` without format characters and others that are drawn as nothing (C-103)."""
    return text if text.isascii() else _INVISIBLE.sub("", text)


def utf8_length(text: str) -> int | None:
    """Bytes of `text` in UTF-8; None if it holds an unpaired surrogate and so has no such form."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode("utf-8"))
    except UnicodeEncodeError:
        return None
