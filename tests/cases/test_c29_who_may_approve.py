"""C29: no list means nobody. Each wrong caller is refused and logged, and the request goes on waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from ledger.config import Config
from ledger.tokens import token_hash
from tests.support.casework import unchanged, untouched
from tests.support.service import ASK, Bench, settings


def _tokens(**roles: Any) -> list[dict[str, Any]]:
    base = [{"name": "host", "tenant": "acme", "roles": ["trigger"], "act_for_users": True}]
    made = [{"name": name, "tenant": "acme", "roles": given} for name, given in roles.items()]
    return [token | {"sha256": token_hash(str(token["name"]))} for token in [*base, *made]]


def _code(reply: Any) -> tuple[int, str]:
    return reply.status_code, reply.get_json()["code"]


def _asked(bench: Bench, **more: Any) -> dict[str, Any]:
    return bench.trigger((ASK, {"n": 29}), session="c29", delivery_id="d1", **more)


def _click(bench: Bench, run: dict[str, Any], as_: str, decision: str = "approve") -> Any:
    return bench.post(f"/api/approvals/{run['calls'][0]['approval_id']}", {"decision": decision}, as_=as_)


@pytest.mark.proves("C-42")
def test_without_a_list_nobody_may(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(tokens=_tokens(reader=["read", "trigger", "host", "erase", "ops"]))
    run = _asked(bench)
    for name, expected in {"host": "not_an_approver", "reader": "not_an_approver", "": "unauthorized"}.items():
        for decision in ("approve", "deny"):
            with untouched(bench):
                assert _code(_click(bench, run, name, decision))[1] == expected
    assert bench.run(run["run_id"])["status"] == "waiting_for_approval"


@pytest.mark.parametrize("tokens", [[], None])
def test_without_any_token_nobody_gets_in(make_bench: Callable[..., Bench], tokens: Any) -> None:
    bench = make_bench(**({} if tokens is None else {"tokens": tokens}))
    name = "host" if tokens == [] else "U1"
    assert _code(bench.get("/api/approvals", as_=name)) == (401, "unauthorized")


@pytest.mark.parametrize(
    "entry",
    [{"roles": []}, {"roles": [" "]}, {"roles": ["approve "]}, {"name": " "}, {"name": "U1 "}, {"name": ""}],
)
def test_a_list_of_nothing_is_no_configuration(entry: dict[str, Any]) -> None:
    token = {"name": "U1", "tenant": "acme", "roles": ["approve"], "sha256": token_hash("U1")} | entry
    with pytest.raises(ValueError, match="tokens"):
        Config.model_validate(settings("redis://127.0.0.1:1", tokens=[token]))


@pytest.mark.proves("C-42")
@pytest.mark.parametrize(
    ("caller", "expected"),
    [
        ("U2", (403, "not_an_approver")),
        ("host", (403, "not_an_approver")),
        ("other", (404, "not_found")),
        ("forged", (401, "unauthorized")),
        ("", (401, "unauthorized")),
        ("dana", (403, "requester_may_not_approve")),
        ("asker", (403, "requester_may_not_approve")),
    ],
)
def test_every_wrong_caller_is_refused_and_logged(
    make_bench: Callable[..., Bench], caller: str, expected: tuple[int, str]
) -> None:
    tokens = _tokens(U1=["approve"], U2=["read"], dana=["approve"], asker=["approve", "trigger"])
    tokens += [{"name": "other", "tenant": "umbrella", "roles": ["approve"], "sha256": token_hash("other")}]
    tokens[-2]["act_for_users"] = True
    bench = make_bench(tokens=tokens)
    run = _asked(bench, user="dana", as_="asker")
    with capture_logs() as logs, untouched(bench):
        assert _code(_click(bench, run, caller)) == expected
    (line,) = [line for line in logs if line["event"] == "decision_not_taken"]
    assert line["code"] == expected[1]
    assert line["principal"] == (caller if expected[0] != 401 else None)
    assert bench.run(run["run_id"])["status"] == "waiting_for_approval"

    # The one allowed caller still can, and a replay of that click changes nothing.
    first = _click(bench, run, "U1")
    assert (first.status_code, first.get_json()["decided_by"]) == (200, "U1")
    with unchanged(bench):
        assert _click(bench, run, "U1").get_json() == first.get_json()
    assert bench.begin(run).work is not None


@pytest.mark.proves("C-42")
def test_the_requester_may_where_that_is_configured(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(tokens=_tokens(asker=["approve", "trigger"]), policy={"requester_may_approve": True})
    run = _asked(bench, as_="asker")
    assert _click(bench, run, "asker").status_code == 200


@pytest.mark.proves("C-42")
def test_a_trigger_cannot_approve_itself(bench: Bench) -> None:
    body = {"session_id": "c29", "calls": [{"tool": ASK, "arguments": {}}]}
    for field in ("approved", "decision", "approval", "human", "level", "rule"):
        assert _code(bench.post("/api/trigger", body | {field: "approve"})) == (400, "invalid_request")
        call = {"tool": ASK, "arguments": {}, field: "approve"}
        assert _code(bench.post("/api/trigger", body | {"calls": [call]})) == (400, "invalid_request")
