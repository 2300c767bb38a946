"""The shapes of credentials (C-103).

They follow the vendors' published forms, a little shorter than the real thing where that costs no false
alarm. None asks for a word boundary unless ordinary words end in its prefix: a token glued to a word is one.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import NamedTuple


class Pattern(NamedTuple):
    """One shape: `hints` are casefolded pieces, one of which is in every match; `judge` has the last word."""

    hints: tuple[str, ...]
    regex: re.Pattern[str]
    judge: Callable[[re.Match[str]], bool] | None = None

    def found(self, text: str) -> bool:
        """Whether `text` holds this shape."""
        if self.judge is None:
            return self.regex.search(text) is not None
        return any(map(self.judge, self.regex.finditer(text)))

    def replace(self, text: str, mark: str) -> str:
        """`text` with every match of this shape replaced by `mark`."""
        judge = self.judge
        if judge is None:
            return self.regex.sub(mark, text)
        return self.regex.sub(lambda match: mark if judge(match) else match[0], text)


def _holds_user_and_password(match: re.Match[str]) -> bool:
    """Basic credentials are base64 of `user:password`; "Basic configuration" is not."""
    value = match[1].rstrip("=").translate(_URL_SAFE)
    try:
        decoded = base64.b64decode(value + "=" * (-len(value) % 4)).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return False
    return ":" in decoded and decoded.isprintable()


def _exact(*hints: str, regex: str) -> Pattern:
    """Vendors' prefixes are told apart by case; `W` stands for a token's usual characters."""
    return Pattern(hints, re.compile(regex.replace("W", "[A-Za-z0-9_-]")))


def _folded(*hints: str, regex: str, judge: Callable[[re.Match[str]], bool] | None = None, flags: int = 0) -> Pattern:
    return Pattern(hints, re.compile(regex, flags | re.IGNORECASE), judge)


_URL_SAFE = str.maketrans("-_", "+/")
_GAP = "[\\s:=+\"'\u00ad\u200b-\u200d\u2060\ufeff]{1,8}"
_VALUE = r"""(?:"[^"]*"?|'[^']*'?|[^\s"'&;,<>]+)"""
_KEY = (
    r"(?:passw(?:or)?d|passphrase|passcode|pwd|secret|token|jwt|credentials?|sess(?:ion)?[ _.-]?id"
    r"|(?:api|access|private|account|secret|signing|encryption)[ _.-]?key(?:[ _.-]?id)?)"
)
_KEY_HINTS = ("passw", "passphrase", "passcode", "pwd", "secret", "token", "jwt", "credential", "sess", "key")

_VENDORS = (
    _exact("akia", "asia", "a3t", "abia", "acca", regex=r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}"),
    _exact("gh", "github_pat_", regex=r"gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{22,}"),
    _exact("gl", regex=r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct|oas)-W{20,}"),
    _exact("xox", "xapp-", regex=r"(?:xox[a-z](?:\.xox[a-z])?|xapp)-[A-Za-z0-9-]{10,}"),
    _exact("_live_", "_test_", "whsec_", regex=r"(?:[sr]k_(?:live|test)_|whsec_)[A-Za-z0-9]{20,}"),
    _exact("aiza", "ya29.", "gocspx-", regex=r"AIzaW{30,}|ya29\.W{20,}|GOCSPX-W{20,}"),
    # Disks, desks and tasks end in "sk": the bare prefix must start a word, the longer ones must be long.
    _exact(
        "sk-",
        regex=r"(?<![A-Za-z0-9])sk-(?:(?:proj|svcacct|admin|ant|or)-W{16,}|[A-Za-z0-9]{20,})"
        r"|sk-(?:proj|svcacct|admin|ant)-W{32,}",
    ),
    _exact("npm_", "hf_", regex=r"(?:npm|hf)_[A-Za-z0-9]{30,}"),
    _exact("pypi-", "dckr_pat_", "glsa_", regex=r"pypi-W{50,}|dckr_pat_W{20,}|glsa_[A-Za-z0-9]{32}_"),
    _exact("_v1_", "shp", regex=r"do[opr]_v1_[a-f0-9]{60,}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    _exact("hv", "sg.", regex=r"hv[sbr]\.W{20,}|SG\.W{16,}\.W{16,}"),
    _exact("lin_api_", "atatt3", regex=r"lin_api_[A-Za-z0-9]{30,}|ATATT3[A-Za-z0-9_=-]{50,}"),
    _exact("eyj", regex=r"eyJW{5,}\.(?:eyJW{5,}(?:\.W*)?|W*(?:\.W+){3})"),
)

_HEADERS_AND_KEYS = (
    _folded(
        "private key",
        regex=r"-{2,5} ?BEGIN[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?"
        r"(?:.*?-{2,5} ?END[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{0,5}|.*)",
        flags=re.DOTALL,
    ),
    _folded(
        "authorization",
        regex=r"authorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:bearer|basic|token|digest|negotiate)\s{1,4}\S{6,}",
    ),
    _folded(
        "bearer",
        regex=rf"bearer{_GAP}(?:(?=[A-Z_.~+/=-]{{0,200}}[0-9])[A-Z0-9_.~+/=-]{{12,}}|[A-Z0-9_.~+/=-]{{24,}})",
    ),
    _folded("basic", regex=rf"basic{_GAP}([A-Z0-9_+/-]{{6,}}={{0,2}})", judge=_holds_user_and_password),
)

_PAIRS = (
    _folded(*_KEY_HINTS, regex=rf"{_KEY}[\\\"'\]]{{0,3}}\s{{0,4}}=>?\s{{0,4}}{_VALUE}"),
    _folded(*_KEY_HINTS, regex=rf"{_KEY}[\\\"']{{1,3}}\s{{0,4}}:\s{{0,4}}\\?{_VALUE}"),
    # A colon is also punctuation: in prose the value must look made up, and `:secret:` is part of an ARN.
    _folded(
        *_KEY_HINTS,
        regex=rf"(?<!:){_KEY}\s{{0,4}}:\s{{0,4}}"
        r"(?:\"[^\"]+\"?|'[^']+'?|(?=[^\s\"',;&0-9]{0,200}[0-9])[^\s\"',;&]{6,}|[^\s\"',;&]{20,})",
    ),
    _folded(
        "pass=",
        "auth=",
        "sig=",
        "signature=",
        regex=r"(?:pass|auth|sig|signature)=[^\s\"'&;,<>]{8,}",
    ),
)

_LINKS = (
    _exact("@", regex=r"(?<=://)(?:[^\s/?#]*|[^\s/?#@:]+:(?![0-9]{1,5}/)[^\s@]*)@"),
    # Whoever knows these paths may act: the path is the credential.
    _folded(
        "hooks.slack",
        "webhook",
        "/bot",
        regex=r"hooks\.slack(?:-gov)?\.com\.?(?::\d+)?/+(?:services|workflows|triggers)/[^\s\"'<>]+"
        r"|/api/(?:v\d+/)?webhooks/\d+/[A-Z0-9_-]{20,}|/bot\d{6,}:[A-Z0-9_-]{20,}"
        r"|webhook\.office\.com/[^\s\"'<>]+",
    ),
)

PATTERNS = (*_VENDORS, *_HEADERS_AND_KEYS, *_PAIRS, *_LINKS)
