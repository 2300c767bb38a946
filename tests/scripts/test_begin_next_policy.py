"""begin_next when the worker's policy differs from admission's: the stricter of both wins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from ledger.attempts import Begun, PolicyCheck, Reprotected, Work, begin_next
from ledger.states import MutationStatus, RunStatus
from ledger.store import ScriptCall
from tests.scripts.checking import refused, twice
from tests.support.ledger import (
    POLICY,
    SHARD,
    Ledger,
    begun,
    key,
    proposed,
    sid_of,
    why,
)

SID = sid_of("s1")


def begin(token: str, step: int, **options: Any) -> ScriptCall[Work]:
    policy = options.pop("policy", POLICY)
    return begin_next(SHARD, SID, token, step, policy, **options)


class TestReprotected:
    """A worker whose policy differs from admission's resolves the call again (C-05)."""

    LIMITS: ClassVar = {"policy_digest": "policy-0"}

    def check(self, ledger: Ledger, call: Any) -> tuple[PolicyCheck, str]:
        ledger.admit([call], limits=self.LIMITS)
        (claimed,) = ledger.claim()
        assert isinstance(claimed.work, PolicyCheck)
        return claimed.work, claimed.token

    def answer(self, check: PolicyCheck, *, level: str | None, approval_id: str = "00" + "a" * 32) -> Reprotected:
        return Reprotected(check.run_id, check.index, True, level, approval_id, 60_000)

    @pytest.mark.proves("C-05", "C-22")
    def test_an_unprotected_call_found_protected_gets_an_entry(self, ledger: Ledger) -> None:
        check, token = self.check(ledger, proposed(1, protected=False))
        first, second = twice(ledger, begin(token, 1, reprotected=self.answer(check, level=None)))
        work = begun(first)
        assert replace(work, store_now=0) == replace(begun(second), store_now=0)
        assert ledger.status(work) is MutationStatus.EXECUTION_STARTED

    @pytest.mark.proves("C-05", "C-22")
    def test_a_call_that_needs_a_person_now_is_asked_about_now(self, ledger: Ledger) -> None:
        check, token = self.check(ledger, proposed(1, protected=False))
        answer = self.answer(check, level="confirm")
        first, second = twice(ledger, begin(token, 1, reprotected=answer))
        assert (why(first), why(second)) == ("released", "released")
        run = ledger.read(check.run_id)
        assert (run.status, run.calls[0].level) == (RunStatus.WAITING_FOR_APPROVAL, "confirm")
        assert ledger.approval(answer.approval_id).arguments == {"n": 1, "title": "marker-1"}
        assert [event.type for event in ledger.journal(run)][-1] == "approval_requested"
        assert ledger.raw.zcard(key("approvals")) == 1

    @pytest.mark.proves("C-05")
    def test_a_stricter_level_voids_the_weaker_answer_and_asks_again(self, ledger: Ledger) -> None:
        run = ledger.admit([proposed(1, level="approve")], limits=self.LIMITS).run
        ledger.approve_all(run)
        (claimed,) = ledger.claim()
        assert isinstance(claimed.work, PolicyCheck)
        answer = self.answer(claimed.work, level="confirm")
        assert why(ledger.begin(claimed.sid, claimed.token, 1, reprotected=answer)) == "released"
        assert ledger.statuses(run) == ["waiting_for_approval"]
        assert ledger.approval(answer.approval_id).level == "confirm"
        assert not ledger.raw.exists(key(f"approval:{run.calls[0].approval_id}"))

    @pytest.mark.proves("C-05", "C-43")
    @pytest.mark.parametrize("call", [proposed(1, level="approve", rule="small"), proposed(1, level="approve")])
    def test_the_same_or_a_weaker_level_asks_nobody_again(self, ledger: Ledger, call: Any) -> None:
        run = ledger.admit([call], limits=self.LIMITS).run
        ledger.approve_all(run)
        (claimed,) = ledger.claim()
        assert isinstance(claimed.work, PolicyCheck)
        answer = self.answer(claimed.work, level="approve")
        assert isinstance(ledger.begin(claimed.sid, claimed.token, 1, reprotected=answer), Begun)

    @pytest.mark.proves("C-60")
    def test_nobody_is_asked_about_what_the_record_refuses(self, ledger: Ledger) -> None:
        ledger.admit([proposed(1)])
        ledger.finish()
        turn = ledger.admit([proposed(1)]).run.logical_turn_id
        run = ledger.admit([proposed(1, protected=False)], did="d2", logical_turn_id=turn, limits=self.LIMITS).run
        (claimed,) = ledger.claim()
        assert isinstance(claimed.work, PolicyCheck)
        ledger.begin(claimed.sid, claimed.token, 1, reprotected=self.answer(claimed.work, level="approve"))
        assert ledger.read(run).calls[0].refusal == "mutation_completed"
        assert ledger.raw.zcard(key("approvals")) == 0

    def test_a_refused_begin_asks_nobody(self, ledger: Ledger) -> None:
        ledger.admit([proposed(1, protected=False), proposed(2, protected=False)], limits=self.LIMITS)
        (claimed,) = ledger.claim()
        assert isinstance(claimed.work, PolicyCheck)
        answer = self.answer(claimed.work, level=None)
        work = begun(ledger.begin(claimed.sid, claimed.token, 1, reprotected=answer))
        following = replace(answer, index=1, level="approve")
        refused(ledger, begin(claimed.token, 2, reprotected=following), "call_in_flight")
        ledger.settle(work, claimed.token)
        refused(ledger, begin(claimed.token, 1, reprotected=following), "attempt_voided")
