"""The inbox and decisions over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import chain
from typing import Any
from urllib.parse import urlencode

import pytest

from ledger.approvals import Position
from ledger.identity import session_hash
from ledger.ids import shard_of_session
from ledger.store import ScriptCall, SyncStore
from service.routes.approvals import page_of
from tests.support.service import ASK, AUTO, CONFIRM, Bench, bearer
from tests.support.wait import wait_until

APPROVAL_FIELDS = {
    "id", "state", "session_id", "run_id", "user", "requested_by", "tool", "arguments", "mutation_id", "level",
    "requested_at", "expires_at", "decided_by", "decided_at", "rule",
}  # fmt: skip


def _code(reply: Any) -> tuple[int, str]:
    return reply.status_code, reply.get_json()["code"]


def _path(run: dict[str, Any], index: int = 0) -> str:
    return f"/api/approvals/{run['calls'][index]['approval_id']}"


@pytest.mark.proves("C-40")
def test_a_request_shows_what_is_asked_by_whom_and_until_when(bench: Bench) -> None:
    run = bench.trigger((ASK, {"title": "x", "n": 10**30}), user="dana")
    shown = bench.get(_path(run), as_="bob").get_json()
    assert shown.keys() == APPROVAL_FIELDS
    assert shown["arguments"] == {"title": "x", "n": 10**30}
    assert shown["mutation_id"] == run["calls"][0]["mutation_id"]
    expected = {
        "state": "pending", "session_id": "s1", "run_id": run["run_id"], "user": "dana", "requested_by": "host",
        "tool": ASK, "level": "approve", "decided_by": None, "decided_at": None, "rule": None,
    }  # fmt: skip
    assert {name: shown[name] for name in expected} == expected
    assert shown["requested_at"] < shown["expires_at"]
    assert shown["expires_at"].endswith("Z")


@pytest.mark.proves("C-40")
def test_the_inbox_is_oldest_first_over_all_shards_and_filtered(bench: Bench) -> None:
    runs = [bench.trigger((ASK, {"n": n}), (ASK, {"n": -n}), session=f"s{n}") for n in range(1, 8)]
    assert len({run["run_id"][:2] for run in runs}) > 1
    inbox = bench.get("/api/approvals", as_="bob").get_json()
    assert {row["id"] for row in inbox["approvals"]} == {call["approval_id"] for run in runs for call in run["calls"]}
    times = [row["requested_at"] for row in inbox["approvals"]]
    assert times == sorted(times)
    assert times[0] < times[-1]
    assert inbox["next"] is None
    some = bench.get("/api/approvals?limit=3", as_="bob").get_json()["approvals"]
    assert some == inbox["approvals"][:3]
    twin = next(
        session
        for session in (f"twin{n}" for n in range(1000))
        if shard_of_session(session_hash("acme", session), 16) == int(runs[2]["run_id"][:2], 16)
    )
    bench.trigger((ASK, {}), session=twin)
    one = bench.get("/api/approvals?session_id=s3&state=pending", as_="bob").get_json()["approvals"]
    assert [row["id"] for row in one] == [call["approval_id"] for call in runs[2]["calls"]]
    assert _code(bench.get("/api/approvals?state=denied", as_="bob")) == (400, "invalid_request")
    assert _code(bench.get("/api/approvals?limit=0", as_="bob")) == (400, "invalid_request")


def _page(bench: Bench, as_: str = "bob", **query: Any) -> tuple[list[str], str | None]:
    """Ids of one page, and where the next begins."""
    reply = bench.get("/api/approvals?" + urlencode(query), as_=as_)
    assert reply.status_code == 200, reply.text
    return [row["id"] for row in reply.get_json()["approvals"]], reply.get_json()["next"]


@pytest.mark.proves("C-40")
def test_pages_lose_nothing_and_tell_nothing_twice_while_people_decide(bench: Bench) -> None:
    runs = [bench.trigger((ASK, {"n": n}), (ASK, {"n": -n}), session=f"s{n}") for n in range(1, 10)]
    assert len({run["run_id"][:2] for run in runs}) > 2
    foreign = bench.trigger((ASK, {"n": 1}), as_="other")["calls"][0]["approval_id"]
    whole, after = _page(bench, limit=200)
    assert (len(whole), after) == (18, None)
    first, after = _page(bench, limit=6)
    # One that was shown, one that was not, and one that is asked for after the first page.
    for approval_id in (first[2], whole[8]):
        assert bench.post(f"/api/approvals/{approval_id}", {"decision": "approve"}, as_="bob").status_code == 200
    later = bench.trigger((ASK, {"n": 0}), session="later")["calls"][0]["approval_id"]
    second, after = _page(bench, limit=6, after=after)
    assert bench.post(f"/api/approvals/{second[-1]}", {"decision": "approve"}, as_="bob").status_code == 200
    third, after = _page(bench, limit=6, after=after)
    rest: list[str] = []
    while after is not None:
        found, after = _page(bench, limit=6, after=after)
        rest += found
    assert first + second + third + rest == [one for one in whole if one != whole[8]] + [later]
    assert foreign not in first + second + third + rest
    assert _page(bench, as_="other", limit=1) == ([foreign], None)


@pytest.mark.proves("C-40")
def test_a_page_goes_no_further_than_the_shard_that_was_read_least_far() -> None:
    places = [Position(float(n), "00" + "0" * 32) for n in range(6)]
    found = [(places[n], n) for n in (5, 1, 0, 3)]
    assert page_of(found, places[2], 10) == ([0, 1], places[2])
    assert page_of(found, places[2], 1) == ([0], places[0])
    assert page_of(found, None, 10) == ([0, 1, 3, 5], None)
    assert page_of(found, None, 3) == ([0, 1, 3], places[3])
    assert page_of(found[:1], places[2], 3) == ([], places[2])


@pytest.mark.proves("C-40")
def test_pages_of_one_session_and_cursors_of_another_tenant(bench: Bench) -> None:
    run = bench.trigger(*[(ASK, {"n": n}) for n in range(7)])
    bench.trigger((ASK, {"n": 1}), session="s2")
    mine = [call["approval_id"] for call in run["calls"]]
    pages, after = [], None
    while True:
        found, after = _page(bench, session_id="s1", limit=3, **({} if after is None else {"after": after}))
        pages.append(found)
        if after is None:
            break
        # A cursor says where, not whose: with it another tenant still reads nothing of this one.
        assert _page(bench, as_="other", after=after) == ([], None)
    assert [len(page) for page in pages] == [3, 3, 1]
    assert list(chain.from_iterable(pages)) == mine
    for text in ("x", "1:2", f"1.0:{'g' * 34}"):
        assert _code(bench.get(f"/api/approvals?after={text}", as_="bob")) == (400, "invalid_request")


@pytest.mark.proves("C-41", "C-83")
@pytest.mark.parametrize(("decision", "state"), [("approve", "approved"), ("deny", "denied")])
def test_the_first_decision_wins(bench: Bench, decision: str, state: str) -> None:
    run = bench.trigger((ASK, {"n": 1}))
    first = bench.post(_path(run), {"decision": decision, "comment": "fine"}, as_="bob")
    shown = first.get_json()
    assert first.status_code == 200
    assert shown.keys() == APPROVAL_FIELDS
    assert (shown["state"], shown["decided_by"]) == (state, "bob")
    assert shown["decided_at"] >= shown["requested_at"]
    assert shown["arguments"] == ({"n": 1} if decision == "approve" else None)
    assert bench.post(_path(run), {"decision": decision}, as_="bob").get_json() == shown
    other = "deny" if decision == "approve" else "approve"
    assert _code(bench.post(_path(run), {"decision": other}, as_="bob")) == (409, "already_decided")
    assert _code(bench.post(_path(run), {"decision": decision}, as_="eve")) == (409, "already_decided")
    assert bench.get("/api/approvals", as_="bob").get_json()["approvals"] == []
    assert bench.run(run["run_id"])["calls"][0]["status"] == ("queued" if decision == "approve" else "denied")


@pytest.mark.proves("C-41")
def test_of_many_people_at_once_one_decides(bench: Bench) -> None:
    run = bench.trigger((ASK, {"n": 1}))
    replies: list[Any] = []
    go = threading.Barrier(16)

    def decide(who: str, decision: str) -> None:
        client = bench.app.test_client()
        go.wait()
        replies.append(client.post(_path(run), json={"decision": decision}, headers=bearer(who)))

    answers = [(who, decision) for who in ("bob", "eve") for decision in ("approve", "deny")] * 4
    threads = [threading.Thread(target=decide, args=answer) for answer in answers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = [reply.get_json() for reply in replies if reply.status_code == 200]
    assert len({(one["decided_by"], one["state"], one["decided_at"]) for one in won}) == 1
    assert len(won) == 4
    assert {_code(reply) for reply in replies if reply.status_code != 200} == {(409, "already_decided")}


@pytest.mark.proves("C-41")
def test_a_late_decision_is_expired_though_nobody_sweeps(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(policy={"approval_timeout_seconds": 0.15})
    run = bench.trigger((ASK, {"n": 1}), (ASK, {"n": 2}))

    def decision() -> Any:
        return bench.post(_path(run, 1), {"decision": "deny"}, as_="bob")

    kept = bench.get(_path(run), as_="bob").get_json()
    wait_until(lambda: bench.get(_path(run), as_="bob").get_json()["state"] == "expired", 5, "the expiry")
    assert kept["state"] == "pending"
    assert _code(decision()) == (409, "approval_expired")
    ended = bench.run(run["run_id"])
    assert (ended["status"], [call["status"] for call in ended["calls"]]) == ("failed", ["expired", "expired"])
    assert [call["outcome"] for call in ended["calls"]] == [None, None]


@pytest.mark.proves("C-41")
def test_the_inbox_never_shows_what_has_expired(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(policy={"approval_timeout_seconds": 0.15})
    bench.trigger((ASK, {"n": 1}))

    def inbox() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = bench.get("/api/approvals", as_="bob").get_json()["approvals"]
        assert {row["state"] for row in rows} <= {"pending"}
        return rows

    assert len(inbox()) == 1
    wait_until(lambda: not inbox(), 5, "the expiry")


@pytest.mark.proves("C-41")
def test_a_request_that_expires_between_reading_and_deciding(make_bench: Callable[..., Bench]) -> None:
    class SlowStore(SyncStore):
        """Answers the first read of an approval only when its time is over."""

        waited = False

        def run(self, call: ScriptCall[Any]) -> Any:
            """The answer as it was read."""
            answer = super().run(call)
            if call.script.name == "read_approvals" and not self.waited:
                self.waited = True
                due = answer.approvals[0].expires_at
                wait_until(
                    lambda: int(self.command([["TIME"]])[0][0]) * 1000 > due, 5, "the approval's time to be over"
                )
            return answer

    bench = make_bench(policy={"approval_timeout_seconds": 0.3})
    run = bench.trigger((ASK, {"n": 1}))
    store = SlowStore(bench.door.store.settings)
    bench.door.store = store
    assert _code(bench.approve(run)) == (409, "approval_expired")
    assert bench.run(run["run_id"])["calls"][0]["status"] == "expired"
    store.close()


@pytest.mark.proves("C-41")
def test_a_decision_after_cancel(bench: Bench) -> None:
    run = bench.trigger((ASK, {"n": 1}))
    assert bench.post(f"/api/runs/{run['run_id']}/cancel").status_code == 200
    assert _code(bench.approve(run)) == (409, "approval_cancelled")


@pytest.mark.proves("C-42")
def test_only_an_approver_of_the_tenant_decides(bench: Bench) -> None:
    run = bench.trigger((ASK, {"n": 1}))
    yes = {"decision": "approve"}
    for reply in (bench.post(_path(run), yes), bench.get(_path(run)), bench.get("/api/approvals")):
        assert _code(reply) == (403, "not_an_approver")
    unknown = bench.post("/api/approvals/" + "0" * 34, yes, as_="other")
    foreign = bench.post(_path(run), yes, as_="other")
    assert _code(foreign) == (404, "not_found")
    assert _without_id(foreign) == _without_id(unknown)
    assert _without_id(bench.get(_path(run), as_="other")) == _without_id(bench.get("/api/approvals/x", as_="other"))
    assert bench.get("/api/approvals", as_="other").get_json()["approvals"] == []
    assert bench.client.post(_path(run), json=yes).status_code == 401
    assert bench.run(run["run_id"])["status"] == "waiting_for_approval"


@pytest.mark.proves("C-42")
def test_whoever_asked_may_not_approve_unless_configured(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    own = bench.trigger((ASK, {"n": 1}), as_="eve")
    for_bob = bench.trigger((ASK, {"n": 2}), user="bob")
    assert _code(bench.post(_path(own), {"decision": "approve"}, as_="eve")) == (403, "requester_may_not_approve")
    assert _code(bench.approve(for_bob)) == (403, "requester_may_not_approve")
    relaxed = make_bench(policy={"requester_may_approve": True})
    assert relaxed.post(_path(own), {"decision": "approve"}, as_="eve").status_code == 200


@pytest.mark.proves("C-07")
def test_confirm_wants_the_tools_name(bench: Bench) -> None:
    run = bench.trigger((CONFIRM, {"n": 1}))
    for confirm in ({}, {"confirm": "mcp__d__dro"}, {"confirm": ASK}):
        reply = bench.post(_path(run), {"decision": "approve"} | confirm, as_="bob")
        assert _code(reply) == (422, "confirmation_mismatch")
    good = bench.post(_path(run), {"decision": "approve", "confirm": CONFIRM}, as_="bob")
    assert (good.status_code, good.get_json()["state"]) == (200, "approved")


@pytest.mark.proves("C-64")
@pytest.mark.parametrize("body", [{}, {"decision": "yes"}, {"decision": "approve", "more": 1}, {"decision": True}, []])
def test_decisions_of_the_wrong_shape(bench: Bench, body: Any) -> None:
    run = bench.trigger((ASK, {"n": 1}))
    assert _code(bench.post(_path(run), body, as_="bob")) == (400, "invalid_request")


@pytest.mark.proves("C-44")
def test_a_request_outlives_the_front_door_that_made_it(make_bench: Callable[..., Bench]) -> None:
    run = make_bench().trigger((ASK, {"n": 1}))
    later = make_bench()
    assert later.approve(run).status_code == 200
    later.finish(run)
    assert later.run(run["run_id"])["status"] == "completed"


def test_decisions_wake_a_worker_and_are_counted(bench: Bench) -> None:
    run = bench.trigger((ASK, {"n": 1}))
    assert bench.waker.wakes == 0
    bench.approve(run)
    bench.approve(run)
    bench.approve(run, decision="deny")
    assert bench.waker.wakes == 1
    text = bench.get("/metrics").text
    for result in ("decided", "repeated", "already_decided"):
        assert f'mutation_ledger_decisions_total{{result="{result}"}} 1.0' in text


def test_a_call_that_nobody_is_asked_about_is_not_in_the_inbox(bench: Bench) -> None:
    bench.trigger((AUTO, {"n": 1}))
    assert bench.get("/api/approvals", as_="bob").get_json() == {"approvals": [], "next": None}


def _without_id(reply: Any) -> dict[str, Any]:
    problem: dict[str, Any] = reply.get_json()
    del problem["request_id"]
    return problem
