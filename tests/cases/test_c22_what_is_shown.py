"""C22: the approver sees what will be done: the very arguments that were hashed, with nothing that acts or hides."""

from __future__ import annotations

import hashlib
import json
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.support import cli
from tests.support.case_tools import ASK
from tests.support.casework import CaseStack
from tests.support.stack import APPROVER

ARGUMENTS: dict[str, dict[str, Any]] = {
    "markup": {"note": "ok\u0060 <https://phish.invalid|press this one> <!here> *harmless* [b]x[/b]"},
    "direction": {"to": "ab\u202egpj.exe"},
    "look-alike": {"to": "p\u0430ypal"},
    "newlines": {"a": "line1\n" + "\n" * 80 + "DELETE"},
    "terminal": {"a": "\x1b[2J\x1b]0;title\x07\r\x9b31m"},
    "zero width": {"a": "pay\u200b\u2060pal\ufeff"},
    "own words": {"note": "Approved by bob: yes\n  state approved"},
}


@pytest.fixture
def asked(cases: CaseStack, request: pytest.FixtureRequest) -> tuple[CaseStack, str, dict[str, Any], dict[str, Any]]:
    """A pending request for such arguments, in a session of its own."""
    name: str = request.param
    session = f"c22-{name.replace(' ', '-')}"
    run = cases.api.trigger(session, "d1", [(ASK, ARGUMENTS[name])]).body
    return cases, session, ARGUMENTS[name], run["calls"][0]


def _raw(cases: CaseStack, path: str) -> bytes:
    connection = HTTPConnection("127.0.0.1", cases.api.port, timeout=20)
    connection.request("GET", path, headers={"Authorization": f"Bearer {APPROVER}"})
    data = connection.getresponse().read()
    connection.close()
    return data


@pytest.mark.proves("C-40")
@pytest.mark.parametrize("asked", ARGUMENTS, indirect=True)
def test_the_api_gives_exactly_what_is_hashed(asked: Any) -> None:
    cases, session, arguments, call = asked
    shown = _raw(cases, f"/api/approvals?session_id={session}")
    canonical = json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    assert f'"arguments":{canonical}'.encode() in shown
    # Plain ASCII: nothing in it can turn, hide or look like something else.
    assert shown.isascii()
    assert shown.decode().isprintable()
    digest = hashlib.sha256(f'["{ASK}",{canonical}]'.encode()).hexdigest()
    assert call["mutation_id"] == digest
    (approval,) = json.loads(shown)["approvals"]
    assert (approval["mutation_id"], approval["state"], approval["decided_by"]) == (digest, "pending", None)
    cases.api.as_(APPROVER).post(f"/api/approvals/{call['approval_id']}", {"decision": "deny"})


@pytest.mark.proves("C-40")
@pytest.mark.parametrize("asked", ARGUMENTS, indirect=True)
def test_a_terminal_shows_it_and_obeys_nothing(asked: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cases, session, arguments, call = asked
    url = f"http://127.0.0.1:{cases.api.port}"
    ran = cli.run(capsys, "approvals", "--url", url, "--token", APPROVER, "--session", session)
    assert ran.code == 0
    head, who, *lines = ran.out.splitlines()
    assert head.startswith(f"{call['approval_id']}  {ASK}")
    assert session in who
    # The lines read back as the arguments, so nothing was dropped, and no line is anything else.
    assert json.loads("\n".join(lines)) == arguments
    assert all(character.isprintable() for line in ran.out.splitlines() for character in line)
    for hidden in "\u202e\u200b\u2060\ufeff":
        assert hidden not in ran.out
    cases.api.as_(APPROVER).post(f"/api/approvals/{call['approval_id']}", {"decision": "deny"})
