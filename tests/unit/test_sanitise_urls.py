"""Links: scheme, host, port and path, or nothing (C-102; the matrix of public failure reports)."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.sanitise import public_url

MIXED = "a1B2c3D4e5F6g7H8i9J0" * 3
GITHUB = "gh" + "p_" + MIXED[:36]

CLEANED = [
    ("https://ann:q@w@host.example/x?y=1#z", "https://host.example/x"),
    ("https://tok@host.example/x", "https://host.example/x"),
    ("https://:@host.example/x", "https://host.example/x"),
    ("HTTPS://HOST.example/A", "https://host.example/A"),
    ("http://host.example", "http://host.example"),
    ("https://host.example?x=1", "https://host.example"),
    ("https://host.example#x@y/z", "https://host.example"),
    ("https://host.example/x?next=https://a:b@c/\\ d", "https://host.example/x"),
    ("https://host.example:8443/x", "https://host.example:8443/x"),
    ("https://host.example:443/", "https://host.example:443/"),
    ("https://[::1]/x", "https://[::1]/x"),
    ("https://[2001:DB8::7]:8443/x", "https://[2001:db8::7]:8443/x"),
    ("https://192.0.2.7/x", "https://192.0.2.7/x"),
    ("https://host.example./x", "https://host.example./x"),
    ("https://my_host.example/x", "https://my_host.example/x"),
    ("https://exаmple.com/", "https://xn--exmple-4nf.com/"),
    ("https://BÜCHER.example/é", "https://xn--bcher-kva.example/é"),
    ("https://host.example/a;v=1/b", "https://host.example/a;v=1/b"),
    ("https://host.example/@user/a:b", "https://host.example/@user/a:b"),
    ("https://host.example/a%20b/%2e", "https://host.example/a%20b/%2e"),
    ("https://host.example/commit/" + "0a1b2c3d4e" * 4, "https://host.example/commit/" + "0a1b2c3d4e" * 4),
]

WITHHELD = {
    "backslash before the at sign": "https://evil.example\\@good.example/x",
    "backslash in the path": "https://host.example\\x",
    "path parameter with a session": "https://host.example/a;jsessionid=SECRET123",
    "slack webhook": "https://hooks.slack.com/" + "services/T0/B0/" + MIXED[:24],
    "slack webhook by name of another case": "https://Hooks.Slack.COM:443/" + "services/T0/B0/" + MIXED[:24],
    "token segment": "https://host.example/reset/" + GITHUB,
    "token segment in escapes": "https://host.example/reset/%67h" + "p_" + MIXED[:36],
    "token segment in escapes of escapes": "https://host.example/reset/%2567h" + "p_" + MIXED[:36],
    "userinfo in a nested link": "https://host.example/go/https://a:b@c/",
    "script": "javascript:alert(1)",
    "script after a space": " javascript:alert(1)",
    "script over two lines": "java\nscript:alert(1)",
    "data": "data:text/html,x",
    "ftp": "ftp://host/x",
    "no scheme": "//host/x",
    "relative": "/d/17",
    "no slashes": "https:host/x",
    "no host": "http:///x",
    "only userinfo": "https://user:pass@/x",
    "only a port": "https://:8080/x",
    "leading space": " https://host.example/x",
    "trailing line break": "https://host.example/x\n",
    "tab in the host": "https://ex\tample.com/a\nb",
    "space in the path": "https://host.example/a b",
    "markup in the path": 'https://host.example/"><script>',
    "NUL": "https://host.example/\x00x",
    "C1 control": "https://host.example/\x85x",
    "line separator": "https://host.example/\u2028x",
    "bidi override in the host": "https://host\u202e.example/x",
    "bidi override in the path": "https://host.example/\u202ex",
    "fullwidth dot": "https://example．com/",
    "account-of sign": "https://ex℀mple.com/",
    "not IDNA": "https://exa♥mple.com/",
    "percent-encoded host": "https://ex%61mple.com/",
    "unbalanced bracket": "http://[::1/x",
    "text after the bracket": "https://[::1]evil.example/x",
    "bad address": "https://[::zz]/x",
    "address with a zone": "https://[fe80::1%25eth0]/x",
    "IPv4 in brackets": "https://[192.0.2.7]/x",
    "IPv4 as one number": "https://3221225991/x",
    "IPv4 in hexadecimal": "https://0xC0000207/x",
    "IPv4 that is none": "https://192.0.2.777/x",
    "port too large": "https://host.example:99999/x",
    "port 0": "https://host.example:0/x",
    "port in words": "https://host.example:http/x",
    "empty port": "https://host.example:/x",
    "two ports": "https://host.example:1:2/x",
    "empty label": "https://host..example/x",
    "label with a hyphen first": "https://-host.example/x",
    "long label": f"https://{'h' * 64}.example/x",
    "long host": f"https://{'h.' * 127}example/x",
    "unpaired surrogate": "https://host.example/\ud800",
    "empty": "",
}


@pytest.mark.proves("C-102")
@pytest.mark.parametrize(("value", "expected"), CLEANED)
def test_only_scheme_host_port_and_path_are_kept(value: str, expected: str) -> None:
    assert public_url(value) == expected
    assert public_url(expected) == expected


@pytest.mark.proves("C-102")
@pytest.mark.parametrize("value", WITHHELD.values(), ids=WITHHELD)
def test_what_cannot_be_judged_is_withheld(value: str) -> None:
    assert public_url(value) is None


@pytest.mark.proves("C-102")
@pytest.mark.parametrize("value", [None, 17, 1.5, True, {"a": 1}, ["https://host.example"], b"https://host.example"])
def test_what_is_not_text_is_withheld(value: object) -> None:
    assert public_url(value) is None


@pytest.mark.proves("C-102")
def test_2048_bytes_are_the_limit() -> None:
    start = "https://host.example/"
    longest = start + "x" * (2048 - len(start))
    assert public_url(longest) == longest
    assert public_url(longest + "x") is None
    assert public_url(start + "é" * 1013 + "x") == start + "é" * 1013 + "x"
    assert public_url(start + "é" * 1014) is None
    assert public_url(longest[:-1] + "?" + "q") is None
    assert public_url("https://ü.example/" + "x" * 2029) is None


@pytest.mark.proves("C-102")
@settings(deadline=None)
@given(
    st.sampled_from(["https://", "HTTP://", "https:", "//", "https://u:p@", "https://[", ""]),
    st.text(max_size=12),
    st.text(alphabet="/?#@:;%\\[].a0\u202e\u00e9 ", max_size=20),
)
def test_any_text_is_a_clean_link_or_nothing(start: str, host: str, rest: str) -> None:
    url = public_url(start + host + rest)
    if url is None:
        return
    parts = urlsplit(url)
    assert parts.scheme in {"http", "https"}
    assert parts.hostname
    assert parts.netloc.isascii()
    assert "@" not in parts.netloc
    assert not parts.query
    assert not parts.fragment
    assert "?" not in url
    assert "#" not in url
    assert parts.geturl() == url
    assert public_url(url) == url
