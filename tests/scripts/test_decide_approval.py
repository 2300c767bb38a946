"""decide_approval: the first decision wins, the same again is answered the same, a late one is too late."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from ledger.approvals import Decided, Decision, decide
from ledger.erasure import erase_session
from ledger.states import RunStatus
from ledger.store import ScriptCall
from tests.scripts.checking import refused, twice
from tests.support.ledger import SHARD, SHARDS, TENANT, Ledger, begun, key, plan, proposed, sid_of

APPROVER = "bob"


def decision(
    approval_id: str | None, answer: Literal["approve", "deny"] = "approve", **options: Any
) -> ScriptCall[Decided]:
    by = options.pop("by", APPROVER)
    assert approval_id is not None
    return decide(Decision(approval_id, options.pop("tenant", TENANT), answer, by, **options), SHARD)


def ask(ledger: Ledger, level: str = "approve", **options: Any) -> str:
    """Admits one call that a person must approve; the request's id."""
    approval_id = ledger.admit([proposed(1, level=level)], **options).run.calls[0].approval_id
    assert approval_id is not None
    return approval_id


@pytest.mark.proves("C-40", "C-31")
def test_an_approval_queues_the_run_and_wakes_a_worker(ledger: Ledger) -> None:
    run = ledger.admit(plan(1, level="approve")).run
    decided = ledger.run(decision(run.calls[0].approval_id, comment="fine"))
    shown = decided.approval
    assert (decided.how, decided.wake, shown.state, shown.decided_by, shown.comment) == (
        "decided",
        True,
        "approved",
        "bob",
        "fine",
    )
    assert shown.decided_at is not None
    assert ledger.read(run).status is RunStatus.QUEUED
    assert ledger.raw.zrange(key("ready"), 0, -1) == [sid_of("s1").encode()]
    assert [event.word for event in ledger.journal(run) if event.type == "approval_decided"] == ["approved"]


@pytest.mark.proves("C-41")
def test_a_denial_ends_the_run_without_any_outcome(ledger: Ledger) -> None:
    run = ledger.admit(plan(2, level="approve")).run
    ledger.decide(run.calls[0].approval_id or "", "deny")
    assert (ledger.statuses(run), ledger.read(run).status) == (["denied", "skipped"], RunStatus.FAILED)
    assert ledger.approval(run.calls[1].approval_id).state == "cancelled"
    assert (ledger.outcomes(), ledger.read(run).logical_turn_id) == ([], None)
    assert ledger.where("marker-") == []


@pytest.mark.proves("C-41", "C-22")
@pytest.mark.parametrize("answer", ["approve", "deny"])
def test_the_same_answer_by_the_same_person_again_is_answered_the_same(
    ledger: Ledger, answer: Literal["approve", "deny"]
) -> None:
    first, second = twice(ledger, decision(ask(ledger), answer))
    assert (first.how, second.how, first.approval) == ("decided", "repeated", second.approval)


@pytest.mark.proves("C-41")
def test_the_first_decision_wins(ledger: Ledger) -> None:
    approval_id = ask(ledger)
    ledger.run(decision(approval_id))
    refused(ledger, decision(approval_id, "deny"), "already_decided")
    refused(ledger, decision(approval_id, by="carol"), "already_decided")
    ledger.finish()
    refused(ledger, decision(approval_id, "deny"), "already_decided")
    _, again = twice(ledger, decision(approval_id))
    assert again.how == "repeated"


@pytest.mark.proves("C-41")
@pytest.mark.parametrize("answer", ["approve", "deny"])
def test_a_late_decision_writes_the_expiry_though_no_sweep_ran(
    ledger: Ledger, answer: Literal["approve", "deny"]
) -> None:
    run = ledger.admit(plan(1, level="approve"), limits={"approval_ms": 1}).run
    ledger.outlast_requests()
    decided = ledger.run(decision(run.calls[0].approval_id, answer))
    assert (decided.how, decided.approval.state) == ("expired", "expired")
    assert (ledger.statuses(run), ledger.read(run).status) == (["expired"], RunStatus.FAILED)
    refused(ledger, decision(run.calls[0].approval_id, answer), "approval_expired")
    assert ledger.outcomes() == []


@pytest.mark.proves("C-41")
@pytest.mark.parametrize(("left", "how"), [(0, "expired"), (60_000, "decided")])
def test_a_request_ends_at_its_time_and_not_after_it(ledger: Ledger, left: int, how: str) -> None:
    run = ledger.admit(plan(1, level="approve")).run
    approval_id = run.calls[0].approval_id
    ends = ledger.now() + left
    ledger.rewrite(f"approval:{approval_id}", "a", {"ex": ends})
    ledger.rewrite(f"run:{run.run_id}", "0", {"ex": ends})
    assert ledger.run(decision(approval_id)).how == how


@pytest.mark.proves("C-41")
def test_a_cancelled_request_cannot_be_decided(ledger: Ledger) -> None:
    run = ledger.admit(plan(1, level="approve")).run
    ledger.cancel(run)
    refused(ledger, decision(run.calls[0].approval_id), "approval_cancelled")


@pytest.mark.proves("C-42")
@pytest.mark.parametrize("requester", ["agent", "dana"])
def test_neither_principal_nor_user_decides_unless_that_is_allowed(ledger: Ledger, requester: str) -> None:
    approval_id = ask(ledger)
    refused(ledger, decision(approval_id, by=requester), "requester_may_not_approve")
    refused(ledger, decision(approval_id, "deny", by=requester), "requester_may_not_approve")
    assert ledger.run(decision(approval_id, by=requester, requester_may_approve=True)).how == "decided"


@pytest.mark.proves("C-42")
def test_another_tenant_s_request_is_unknown(ledger: Ledger) -> None:
    approval_id = ask(ledger)
    refused(ledger, decision(approval_id, tenant="other"), "not_found")
    refused(ledger, decision("00" + "0" * 32), "not_found")


@pytest.mark.proves("C-07")
def test_confirm_wants_the_tool_s_name_and_a_denial_does_not(ledger: Ledger) -> None:
    for n, wrong in enumerate((None, "", "mcp__boards__creat", "MCP__BOARDS__CREATE")):
        approval_id = ask(ledger, "confirm", did=f"d{n}")
        refused(ledger, decision(approval_id, confirm=wrong), "confirmation_mismatch")
        assert ledger.run(decision(approval_id, "deny")).how == "decided"
    approval_id = ask(ledger, "confirm", did="d9")
    assert ledger.run(decision(approval_id, confirm="mcp__boards__create")).how == "decided"


@pytest.mark.proves("C-44")
def test_a_decision_made_while_the_session_has_no_owner_or_another_is_not_lost(ledger: Ledger) -> None:
    run = ledger.admit([proposed(0), proposed(1, level="approve")], on_error="continue").run
    work, token = ledger.begin_first()
    ledger.decide(run.calls[1].approval_id or "")
    assert ledger.statuses(run) == ["running", "queued"]
    ledger.reclaim()
    second, _ = ledger.begin_first()
    assert (second.run_id, second.index) == (run.run_id, 1)
    assert (work.attempt, token) != (second.attempt, second.attempt)
    assert len([event for event in ledger.journal(run) if event.type == "approval_requested"]) == 1


@pytest.mark.proves("C-31")
def test_an_owner_of_the_session_is_told(ledger: Ledger) -> None:
    waiting = ledger.admit([proposed(1, level="approve")]).run
    ledger.admit([proposed(2)], did="d2")
    work, token = ledger.begin_first()
    pubsub = ledger.raw.pubsub(ignore_subscribe_messages=True)
    pubsub.ssubscribe(key("signal"))
    pubsub.get_sharded_message(timeout=5)
    decided = ledger.decide(waiting.calls[0].approval_id or "")
    message = pubsub.get_sharded_message(timeout=5)
    assert (decided.wake, message["data"]) == (False, b"n" + sid_of("s1").encode())
    pubsub.close()
    following = begun(ledger.settle(work, token, next_step=2).work)
    assert following.run_id == waiting.run_id


@pytest.mark.proves("C-83")
def test_a_decided_request_of_an_ended_call_shows_no_arguments(ledger: Ledger) -> None:
    approval_id = ask(ledger)
    ledger.run(decision(approval_id))
    assert ledger.approval(approval_id).arguments == {"n": 1, "title": "marker-1"}
    ledger.finish()
    assert ledger.approval(approval_id).arguments is None


@pytest.mark.proves("C-82")
@pytest.mark.parametrize("answer", ["approve", "deny"])
def test_a_decision_sent_again_after_an_erasure_shows_nothing(
    ledger: Ledger, answer: Literal["approve", "deny"]
) -> None:
    approval_id = ask(ledger)
    call = decision(approval_id, answer)
    ledger.run(call)
    ledger.run(erase_session(TENANT, "s1", 60_000, SHARDS))
    refused(ledger, call, "approval_cancelled")
    # Nor when a new session has taken the name.
    ledger.admit(plan(1), did="newer")
    refused(ledger, call, "approval_cancelled")
