"""C38: what an approver says yes to can be seen in full, however long; what cannot be shown is never asked."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import cli
from tests.support.case_tools import ASK
from tests.support.casework import CaseStack
from tests.support.stack import APPROVER

LENGTHS = [2_900, 3_001, 20_000, 200_000]


def _ask(cases: CaseStack, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    reply = cases.api.trigger(f"c38-{name}", "d1", [(ASK, arguments)])
    assert reply.status == 202
    call: dict[str, Any] = reply.body["calls"][0]
    return call


@pytest.mark.proves("C-40")
@pytest.mark.parametrize("length", LENGTHS)
def test_the_inbox_shows_every_character(cases: CaseStack, length: int, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = {"text": "".join(chr(0x61 + n % 26) for n in range(length)), "end": "DELETE"}
    call = _ask(cases, str(length), arguments)
    approver = cases.api.as_(APPROVER)
    assert approver.get(f"/api/approvals/{call['approval_id']}").body["arguments"] == arguments
    ran = cli.run(
        capsys, "approvals", "--url", f"http://127.0.0.1:{cases.api.port}", "--token", APPROVER, "--session",
        f"c38-{length}",
    )  # fmt: skip
    assert arguments["text"] in ran.out
    assert '"end": "DELETE"' in ran.out
    decided = approver.post(f"/api/approvals/{call['approval_id']}", {"decision": "approve"}).body
    assert (decided["state"], decided["arguments"]) == ("approved", arguments)
    # Decided and done: neither asked about again nor kept (C-83).
    cases.api.ended(_run_of(cases, call))
    assert approver.get(f"/api/approvals/{call['approval_id']}").body["arguments"] is None
    assert approver.get(f"/api/approvals?session_id=c38-{length}").body["approvals"] == []


@pytest.mark.proves("C-40")
def test_sixty_fields_are_shown(cases: CaseStack) -> None:
    arguments = {f"field_{n}": n for n in range(60)}
    call = _ask(cases, "60", arguments)
    assert cases.api.as_(APPROVER).get(f"/api/approvals/{call['approval_id']}").body["arguments"] == arguments


@pytest.mark.proves("C-02")
def test_what_is_too_long_to_be_kept_is_never_asked(cases: CaseStack) -> None:
    reply = cases.api.trigger("c38-more", "d1", [(ASK, {"text": "x" * 262_144})])
    assert (reply.status, reply.body["code"]) == (400, "invalid_request")
    assert cases.api.as_(APPROVER).get("/api/approvals?session_id=c38-more").body["approvals"] == []


def _run_of(cases: CaseStack, call: dict[str, Any]) -> str:
    run: str = cases.api.as_(APPROVER).get(f"/api/approvals/{call['approval_id']}").body["run_id"]
    return run
