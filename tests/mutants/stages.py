"""Breaks that the stage table, the budgets, late reports and readbacks must notice."""

from __future__ import annotations

from tests.mutants.breaks import Break

OWNER, BEGIN, RUN, REPORT = "workers/owner.py", "ledger/lua/lib/begin.lua", "ledger/lua/lib/run.lua", "lib/report.lua"
TABLE, BOUNDED = "integration/test_stages.py", "integration/test_bounded_execution.py"
SETTLE, CLAIM, EVIDENCE = (
    "ledger/lua/settle_attempt.lua",
    "ledger/lua/claim_readbacks.lua",
    "ledger/lua/lib/evidence.lua",
)
LATE, ASKED, NOTED = (
    "scripts/test_settle_attempt_late.py",
    "scripts/test_claim_readbacks.py",
    "scripts/test_note_readback.py",
)

STAGES = (
    Break(
        "C-30",
        "ledger/lua/sweep_shard.lua",
        "  return length and tonumber(length, 16) or q.le",
        "  return q.le",
        ("scripts/test_sweep_shard.py::test_a_lease_is_judged_by_the_length_in_its_owner_s_token",),
    ),
    Break(
        "C-33",
        f"ledger/lua/{REPORT}",
        "apply_status(S, R, current.t, current.m, entry, 'u', nil, now)",
        "apply_status(S, R, current.t, current.m, entry, 'a', nil, now)",
        (f"{TABLE}::test_sigkill", f"{TABLE}::test_sigkill_when_the_reply_is_there"),
    ),
    Break(
        "C-34",
        "workers/rq_worker.py",
        "                for _ in range(KICKS):",
        "                for _ in range(0):",
        ("integration/test_worker_process.py::test_a_stop_that_another_thread_is_told_of",),
    ),
    Break(
        "C-34",
        "workers/rq_worker.py",
        "        first_stop()\n",
        "        second_stop()\n",
        (f"{TABLE}::test_sigterm", f"{TABLE}::test_sigterm_when_the_reply_is_there"),
    ),
    Break(
        "C-50",
        BEGIN,
        "  return math.min(R.now + q.to, R.now + clock_left(R), R.meta.ce)",
        "  return math.min(R.now + q.to, R.now + clock_left(R))",
        (f"{TABLE}::test_deadline",),
    ),
    Break(
        "C-50",
        OWNER,
        "        status=_STATUS[reply.verdict],",
        "        status=_STATUS[Verdict.OUTCOME_UNKNOWN],",
        (f"{TABLE}::test_deadline_when_the_reply_is_there",),
    ),
    Break(
        "C-51",
        BEGIN,
        "  return math.min(R.now + q.to, R.now + clock_left(R), R.meta.ce)",
        "  return math.min(R.now + q.to, R.meta.ce)",
        (f"{BOUNDED}::test_by_default_what_is_left_is_all_there_is",),
    ),
    Break(
        "C-52",
        BEGIN,
        "  if allowance then",
        "  if false then",
        (f"{BOUNDED}::test_with_a_budget_the_approved_call_gets_its_execution_seconds",),
    ),
    Break(
        "C-52",
        RUN,
        "  if s.sr then s.su, s.sr = s.su + (R.now - s.sr), nil end",
        "  if s.sr then s.su = s.su + 0 end",
        (f"{BOUNDED}::test_a_waiting_handler_s_deadline_is_extended_by_the_approval",),
    ),
    Break(
        "C-52",
        "ledger/budget.py",
        "    if known is not None and known != made:",
        "    if known is not None and known is made:",
        (f"{BOUNDED}::test_a_different_second_budget_is_refused",),
    ),
    Break(
        "C-55",
        OWNER,
        "        if step == self._current:\n            self.cancel.set()",
        "        if step == self._current:\n            self.cancel.is_set()",
        (f"{TABLE}::test_cancel",),
    ),
    Break(
        "C-55",
        RUN,
        "  s.st = s.cx and 'cancelled' or",
        "  s.st = false and 'cancelled' or",
        (f"{TABLE}::test_cancel", f"{TABLE}::test_cancel_when_the_reply_is_there"),
    ),
    Break(
        "C-91",
        SETTLE,
        "  if entry and entry.pa == q.at and entry.pc then",
        "  if entry and false then",
        (
            f"{LATE}::test_a_report_of_an_attempt_said_not_to_be_executed_raises_the_alarm_after_the_next_one_began",
            "integration/test_zombie.py::test_said_not_to_be_executed_and_done_again_the_zombie_s_success_is_an_alarm",
        ),
    ),
    Break(
        "C-91",
        SETTLE,
        "redis.call('HINCRBY', K.counts, 'late_reports:' .. q.v, 1)",
        "redis.call('HINCRBY', K.counts, 'late_reports:' .. q.v, 0)",
        (
            f"{LATE}::test_a_report_after_reconciliation_is_kept_and_changes_nothing",
            "integration/test_zombie.py::test_stopped_inside_a_call_past_its_not_after",
        ),
    ),
    Break(
        "C-91",
        "ledger/lua/lib/outcome.lua",
        "  redis.call('ZADD', K.readback(entry.tl), 'NX', entry.na + 1, member)",
        "  redis.call('ZADD', K.readback(entry.tl), 'NX', now, member)",
        (f"{ASKED}::test_nothing_is_asked_before_the_attempt_s_not_after",),
    ),
    Break(
        "C-91",
        CLAIM,
        "  redis.call('ZADD', index, now + q.hd, member)",
        "  redis.call('ZADD', index, now, member)",
        (f"{ASKED}::test_one_at_a_time_until_the_hold_is_over",),
    ),
    Break(
        "C-91",
        CLAIM,
        " or asked.n >= q.cap then",
        " then",
        (f"{ASKED}::test_after_the_last_try_nobody_asks_any_more",),
    ),
    Break(
        "C-91",
        EVIDENCE,
        " or asked.k ~= told.k then",
        " then",
        (f"{NOTED}::test_an_answer_to_a_question_that_is_somebody_else_s_by_now_changes_nothing",),
    ),
    Break(
        "C-91",
        EVIDENCE,
        " or entry.at ~= attempt or",
        " or",
        (f"{NOTED}::test_an_answer_about_an_earlier_attempt_changes_nothing",),
    ),
)
