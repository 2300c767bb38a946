"""The public form of a link: scheme, host, port and path, or nothing (C-102)."""

from __future__ import annotations

import ipaddress
import re

import idna

from ledger.sanitise.characters import has_controls, utf8_length
from ledger.sanitise.credentials import contains_credential

MAX_URL_BYTES = 2_048

_LINK = re.compile(r"(https?)://([^/]+)(/.*)?", re.IGNORECASE)
_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::([0-9]{1,5}))?")
# A backslash is a slash to browsers and not to parsers; none of these may stand in a URL unescaped.
_FORBIDDEN = re.compile(r"""[\s\\<>"`]""")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


def public_url(value: object) -> str | None:
    """The http(s) URL without userinfo, query and fragment; None where it is withheld (C-102).

    Withheld are: over `MAX_URL_BYTES` bytes before or after cleaning, another scheme, whatever parsers
    disagree about (backslashes, whitespace, controls, strange hosts and ports), and paths that hold a
    credential. A port is kept; a host that is not ASCII must be valid IDNA and is published in its ASCII
    form.
    """
    if not isinstance(value, str) or len(value) > MAX_URL_BYTES:
        return None
    head = value.partition("#")[0].partition("?")[0]
    size = utf8_length(value)
    if size is None or size > MAX_URL_BYTES or has_controls(head) or _FORBIDDEN.search(head):
        return None
    link = _LINK.fullmatch(head)
    if link is None:
        return None
    scheme, authority, path = link.groups(default="")
    where = _public_authority(authority.rpartition("@")[2])
    if where is None:
        return None
    url = f"{scheme.lower()}://{where}{path}"
    size = utf8_length(url)
    if size is None or size > MAX_URL_BYTES or contains_credential(url):
        return None
    return url


def _public_authority(authority: str) -> str | None:
    parts = _HOST_AND_PORT.fullmatch(authority)
    if parts is None:
        return None
    host, port = _public_host(parts[1].lower()), parts[2]
    if host is None or (port is not None and not 0 < int(port) < 65_536):
        return None
    return host if port is None else f"{host}:{int(port)}"


def _public_host(host: str) -> str | None:
    if host.startswith("["):
        return host if _is_address(host[1:-1], 6) else None
    if not host.isascii():
        try:
            host = idna.encode(host, strict=True).decode("ascii")
        except UnicodeError:
            return None
    labels = host.removesuffix(".").split(".")
    if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
        return None
    # Browsers read a host that ends in a number as an IPv4 address, in forms few parsers know.
    if _NUMBER.fullmatch(labels[-1]) and not _is_address(host, 4):
        return None
    return host


def _is_address(text: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(text).version == version
    except ValueError:
        return False
