"""C16: what is published of a link, row by row: as attached over HTTP, as every reader gets it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.service import AUTO, Bench

SLACK = "https://hooks.slack" + ".com/services/T0/B0/" + "Ab3dE6gH9jKlMn0pQrStUvWx"
GITHUB = "gh" + "p_" + "Ab3dE6gH9jKlMn0pQrStUvWxYzAb3dE6gH9jKl"
WITHHELD = None
ROWS: list[tuple[str, str | None]] = [
    ("https://ann:q@w@host.example/x?y=1#z", "https://host.example/x"),
    ("https://tok@host.example/x", "https://host.example/x"),
    ("HTTPS://HOST.example/A", "https://host.example/A"),
    ("https://evil.example\\@good.example/x", WITHHELD),
    ("https://host.example/a;jsessionid=SECRET123", WITHHELD),
    (SLACK, WITHHELD),
    (f"https://host.example/reset/{GITHUB}", WITHHELD),
    (f"https://host.example/reset/%67{GITHUB[1:]}", WITHHELD),
    ("javascript:alert(1)", WITHHELD),
    (" javascript:alert(1)", WITHHELD),
    ("java\nscript:alert(1)", WITHHELD),
    ("data:text/html,x", WITHHELD),
    ("ftp://host/x", WITHHELD),
    ("//host/x", WITHHELD),
    ("https:host/x", WITHHELD),
    ("http:///x", WITHHELD),
    ("https://ex\tample.com/a\nb", WITHHELD),
    ("https://host.example/\x00x", WITHHELD),
    ("https://ho\u202est.example/x", WITHHELD),
    ("https://ex\u0430mple.com/", "https://xn--exmple-4nf.com/"),
    ("https://example\uff0ecom/", WITHHELD),
    ("https://host.example:8443/x", "https://host.example:8443/x"),
    ("https://[::1]/x", "https://[::1]/x"),
]


@pytest.mark.proves("C-102")
@pytest.mark.parametrize(("given", "shown"), ROWS)
def test_the_matrix(bench: Bench, given: str, shown: str | None) -> None:
    run = bench.trigger((AUTO, {"n": 1}), session="c16", delivery_id="d1")
    bench.finish(run)
    body = {"session_id": "c16", "delivery_id": "d1", "mutation_id": run["calls"][0]["mutation_id"]}
    reply = bench.post("/api/mutation-metadata", body | {"metadata": {"url": given, "id": "kept"}})
    assert reply.status_code == 200, reply.text
    record: dict[str, Any] = reply.get_json()
    assert (record["url"], record["resource_id"]) == (shown, "kept")
    assert bench.get("/api/mutation-outcomes?session_id=c16").get_json() == {"mutation_outcomes": [record]}
    assert bench.run(run["run_id"])["calls"][0]["outcome"] == record
