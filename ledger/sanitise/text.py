"""The public form of a resource's id and title (C-102)."""

from __future__ import annotations

import json

from ledger.sanitise.characters import drop_controls, drop_invisible, has_controls, utf8_length
from ledger.sanitise.credentials import contains_credential, redacted

MAX_RESOURCE_ID_BYTES = 256
MAX_TITLE_BYTES = 512
# Far above what metadata can hold; a longer title is not one, and is not searched.
MAX_TITLE_INPUT = 65_536

_MAX_PASSES = 4


def public_resource_id(value: object) -> str | None:
    """The id unchanged; None if it is empty, too long, or holds a control or a credential (C-102)."""
    if not isinstance(value, str) or not value or len(value) > MAX_RESOURCE_ID_BYTES:
        return None
    size = utf8_length(value)
    if size is None or size > MAX_RESOURCE_ID_BYTES or has_controls(value) or contains_credential(value):
        return None
    return value


def public_title(value: object) -> str | None:
    """The title without controls and credentials, cut to `MAX_TITLE_BYTES`; None where it is withheld
    (C-102).

    Withheld are: not text, blank, unpaired surrogates, over `MAX_TITLE_INPUT` characters, and what is a JSON
    object or array before redaction, after it or after truncation.
    """
    if not isinstance(value, str) or len(value) > MAX_TITLE_INPUT or utf8_length(value) is None:
        return None
    if _is_structured(drop_controls(value)):
        return None
    title = _redacted_without_controls(value)
    if title is None:
        return None
    whole, title = title, truncate(title, MAX_TITLE_BYTES)
    if not title.strip() or _is_structured(title) or (title != whole and contains_credential(title)):
        return None
    return title


def _redacted_without_controls(text: str) -> str | None:
    """Redact before controls go (a tab may part "Bearer" from its value) and after (one may part a token)."""
    for _ in range(_MAX_PASSES):
        clean = redacted(text)
        if clean is None or not has_controls(clean):
            return clean
        text = drop_controls(clean)
    return None


def truncate(text: str, max_bytes: int) -> str:
    """The longest beginning of `text` within `max_bytes` of UTF-8; no code point is split."""
    if len(text) * 4 <= max_bytes:
        return text
    data = text.encode("utf-8")
    return text if len(data) <= max_bytes else data[:max_bytes].decode("utf-8", "ignore")


def _is_structured(text: str) -> bool:
    """Whether the text is a JSON object or array; what the parser gives up on counts as one."""
    text = drop_invisible(text).strip()
    if not text.startswith(("{", "[")) or not text.endswith(("}", "]")):
        return False
    try:
        json.loads(text, parse_int=str)
    except ValueError:
        return False
    except RecursionError:
        return True
    return True
