"""C35: one function makes the digest; the door, the approver, the worker and every record say the same."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from ledger.identity import mutation_identity
from tests.support.case_tools import ASK
from tests.support.casework import CaseStack
from tests.support.stack import APPROVER

ARGUMENTS: list[str] = [
    '{"n":1e-7}',
    '{"n":0.00001}',
    '{"to":"caf\u00e9"}',
    '{"to":"cafe\u0301"}',
    '{"\\ud800\\udf48":1,"\\uf900":2}',
    '{"s":"\\u2028\\u007f</script>"}',
    '{"b":1,"a":{"d":1,"c":2}}',
]
# SHA-256 of `["pay",<arguments>]`, first 16 hex: they stay what they are over releases.
GOLDEN: list[tuple[dict[str, Any], str]] = [
    ({"n": 1}, "0bb2a644266665ef"),
    ({"n": 1.0}, "17bc3d5946ace8ca"),
    ({"n": True}, "e90ef0e8db67912a"),
    ({"n": "1"}, "c950644c20978967"),
    ({"n": 0}, "d6254ae082199d59"),
    ({"n": 0.0}, "f0616de896133c6d"),
    ({"n": -0.0}, "14c684cd6f49cc2a"),
    ({"b": 1, "a": [3, 2]}, "444826174b82a333"),
    ({"account": 18446744073709551616}, "8053a9d8fb1decab"),
    ({"account": 18446744073709551617}, "8cedf35088b03587"),
    ({"n": 9007199254740992}, "db1b77f83c2713e8"),
    ({"n": 9007199254740993}, "35b861faa22b2635"),
    ({"to": "caf\u00e9"}, "23cce9cc9faeadff"),
    ({"to": "cafe\u0301"}, "ff24b29302ef512b"),
    ({"n": 1e-7}, "19081feff0aa820a"),
]


@pytest.mark.proves("C-01")
@pytest.mark.parametrize(("arguments", "digest"), GOLDEN)
def test_golden_digests(arguments: dict[str, Any], digest: str) -> None:
    assert mutation_identity("pay", arguments).startswith(digest)


@pytest.mark.proves("C-01", "C-03")
@pytest.mark.parametrize("text", ARGUMENTS)
def test_everybody_says_the_same(cases: CaseStack, text: str) -> None:
    value = json.loads(text)
    canonical = json.dumps([ASK, value], sort_keys=True, separators=(",", ":"), allow_nan=False)
    expected = hashlib.sha256(canonical.encode("ascii")).hexdigest()
    session = f"c35-{expected[:8]}"
    body = f'{{"session_id":"{session}","user":"dana","agent":"ops","delivery_id":"d1",'
    body += f'"calls":[{{"tool":"{ASK}","arguments":{text}}}]}}'
    run = cases.api.post("/api/trigger", body.encode()).body
    call = run["calls"][0]
    asked = cases.api.as_(APPROVER).get(f"/api/approvals/{call['approval_id']}").body
    assert asked["arguments"] == value
    assert cases.api.approve(call["approval_id"]).status == 200
    ended = cases.api.ended(run["run_id"])
    (effect,) = [line for line in cases.stack.effects() if line["mutation_id"] == expected]
    assert effect["arguments"] == value
    named = {"session_id": session, "agent": "ops", "user": "dana", "delivery_id": "d1", "metadata": {"id": "7"}}
    attached = cases.api.post("/api/mutation-metadata", named | {"mutation_id": mutation_identity(ASK, value)}).body
    state = cases.api.get(f"/api/mutation-state?session_id={session}&agent=ops&user=dana&delivery_id=d1").body
    stream = cases.client.xrange(f"ml:{{{run['run_id'][:2]}}}:outcomes")
    said = {
        "door": call["mutation_id"],
        "approver": asked["mutation_id"],
        "run": ended["calls"][0]["mutation_id"],
        "outcome": cases.api.outcomes(session)[0]["mutation_id"],
        "ledger": next(iter(state["mutation_state"]["mutations"])),
        "stream": next(f[b"mutation_id"].decode() for _, f in stream if f[b"session_id"] == session.encode()),
        "worker": effect["mutation_id"],
        "host": attached["mutation_id"],
    }
    assert said == dict.fromkeys(said, expected)
