"""C15: credentials of every shape in a title or an id, judged as published: on the API, in the stream, in the state."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.support.service import AUTO, Bench

A, D, H = "Ab3dE6gH9jKlMn0pQrStUvWxYz", "0123456789", "0123456789abcdef"


def _random(length: int) -> str:
    """Letters and digits that no shape takes for a word; built here, so that no scanner finds a token in this file."""
    return (A * (length // len(A) + 1))[:length]


SHAPES = {
    "github_pat_": "github_" + "pat_" + _random(22) + "_" + _random(59),
    "ghs_": "gh" + "s_" + _random(36),
    "gho_": "gh" + "o_" + _random(36),
    "ghr_": "gh" + "r_" + _random(36),
    "xapp": "xap" + "p-1-" + _random(30),
    "xoxe": "xox" + "e-" + _random(40),
    "xoxe.xoxp": "xox" + "e.xox" + "p-1-" + _random(40),
    "ASIA": "AS" + "IA" + "ABCDEFGH23456789",
    "AIza": "AI" + "za" + _random(35),
    "sk_live_": "sk_" + "live_" + _random(24),
    "rk_live_": "rk_" + "live_" + _random(24),
    "sk-proj-": "sk-" + "proj-" + _random(40),
    "glpat-": "gl" + "pat-" + _random(20),
    "npm_": "np" + "m_" + _random(36),
    "hf_": "h" + "f_" + _random(34),
    "jwt": "ey" + "J" + _random(20) + ".ey" + "J" + _random(20) + "." + _random(43),
    "jwt without signature": "ey" + "J" + _random(20) + ".ey" + "J" + _random(20) + ".",
    "bearer, tab": "bEaReR\t" + _random(30),
    "basic": "Authorization: Basic " + base64.b64encode(b"user:pass").decode(),
    "apiKey": 'apiKey":"' + _random(20),
    "password=": "password=hunter2hunter2",
    "pem": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "glued to a word": "xgh" + "p_" + _random(36),
    "zero width space inside": "gh" + "p_" + _random(10) + "\u200b" + _random(26),
    "percent-encoded": "gh" + "p%5F" + _random(36),
}
CONTROLS = ["Bearer of good news", (H * 3)[:40], "123e4567-e89b-12d3-a456-426614174000", "token count 1500"]


@pytest.fixture
def attach(bench: Bench) -> Any:
    """Attaches metadata to one completed mutation and answers what every reader then sees."""
    run = bench.trigger((AUTO, {"n": 1}), session="c15", delivery_id="d1")
    bench.finish(run)
    body = {"session_id": "c15", "delivery_id": "d1", "mutation_id": run["calls"][0]["mutation_id"]}

    def attached(**metadata: str) -> dict[str, Any]:
        reply = bench.post("/api/mutation-metadata", body | {"metadata": metadata})
        assert reply.status_code == 200, reply.text
        record: dict[str, Any] = reply.get_json()
        assert bench.get("/api/mutation-outcomes?session_id=c15").get_json() == {"mutation_outcomes": [record]}
        return record

    return attached


@pytest.mark.proves("C-102", "C-103")
@pytest.mark.parametrize("shape", SHAPES)
def test_an_id_is_withheld_and_a_title_redacted(attach: Any, bench: Bench, shape: str) -> None:
    secret = SHAPES[shape]
    record = attach(id=secret, title=f"made {secret} today")
    assert record["resource_id"] is None
    assert record["title"] is not None
    assert "[redacted]" in record["title"]
    assert record["title"].startswith("made ")
    if shape not in ("pem", "apiKey"):  # what has no end is cut to the text's end
        assert record["title"].endswith(" today")
    tail = secret[-12:]
    assert tail not in record["title"]
    # What consumers read is the same text.
    stream = bench.door.store.command([["XREVRANGE", _stream(record), "+", "-", "COUNT", 1]])[0]
    assert tail not in repr(stream)


@pytest.mark.proves("C-103")
@pytest.mark.parametrize("text", CONTROLS)
def test_ordinary_text_is_kept(attach: Any, text: str) -> None:
    record = attach(id=text, title=text)
    assert (record["resource_id"], record["title"]) == (text, text)


def _stream(record: dict[str, Any]) -> str:
    return f"ml:{{{record['logical_turn_id'][:2]}}}:outcomes"
