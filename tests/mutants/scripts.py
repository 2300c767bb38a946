"""Breaks of the Lua scripts: moves, approvals, deliveries."""

from __future__ import annotations

from tests.mutants.breaks import Break

ADMIT = "ledger/lua/admit_delivery.lua"
BEGIN = "ledger/lua/lib/begin.lua"
SETTLE = "ledger/lua/settle_attempt.lua"
DECIDE = "ledger/lua/decide_approval.lua"
RUN = "ledger/lua/lib/run.lua"

SCRIPTS = (
    Break(
        "C-10",
        SETTLE,
        "elseif entry.s == 's' or (entry.s == 'u' and not entry.fh and q.v ~= 'u') then",
        "elseif entry.s == 's' then",
        ("scripts/test_settle_attempt_late.py::test_a_first_hand_report_after_reclaim_wins_once",),
    ),
    Break(
        "C-10",
        SETTLE,
        "elseif entry.s == 's' or (entry.s == 'u' and not entry.fh and q.v ~= 'u') then",
        "elseif true then",
        ("scripts/test_settle_attempt_late.py::test_a_first_hand_report_after_reclaim_wins_once",),
    ),
    Break(
        "C-10",
        "ledger/lua/lib/report.lua",
        "apply_status(S, R, current.t, current.m, entry, 'u', nil, now)",
        "apply_status(S, R, current.t, current.m, entry, 'a', nil, now)",
        (
            "scripts/test_sweep_shard.py"
            "::test_what_a_lost_owner_left_started_is_published_unknown_and_never_begun_again",
        ),
    ),
    Break(
        "C-12",
        "ledger/lua/lib/outcome.lua",
        "turn.rv = turn.rv + 1",
        "turn.rv = turn.rv + 2",
        (
            "scripts/test_settle_attempt.py::test_status_revision_stream_and_journal_change_in_one_step",
            "scripts/test_attach_metadata.py::test_on_an_outcome_it_is_published_under_the_next_revision",
        ),
    ),
    Break(
        "C-12",
        "ledger/lua/lib/outcome.lua",
        "entry.rv = turn.rv",
        "entry.rv = entry.rv or turn.rv",
        ("scripts/test_settle_attempt.py::test_status_revision_stream_and_journal_change_in_one_step",),
    ),
    Break(
        "C-13",
        BEGIN,
        "if not approval or approval.st ~= 'approved' or approval.us then return nil end",
        "if not approval or approval.st ~= 'approved' then return nil end",
        (
            "scripts/test_begin_next.py::test_one_approval_pays_for_one_attempt",
            "scripts/test_begin_next.py::test_only_a_fresh_approval_pays",
        ),
    ),
    Break(
        "C-13",
        BEGIN,
        "approval.us = true",
        "approval.us = nil",
        (
            "scripts/test_begin_next.py::test_intent_and_consumed_approval_are_written_together",
            "scripts/test_begin_next.py::test_one_approval_pays_for_one_attempt",
        ),
    ),
    Break(
        "C-13",
        BEGIN,
        "if approval == nil then return refuse_call(R, i, 'approval_not_fresh') end",
        "if approval == nil then approval = false end",
        ("scripts/test_begin_next.py::test_only_a_fresh_approval_pays",),
    ),
    Break(
        "C-40",
        ADMIT,
        "local arguments, expires = {}, math.min(now + q.ap, ceiling)",
        "local arguments, expires = {}, now + q.ap",
        ("scripts/test_admit_delivery.py::test_a_request_expires_no_later_than_its_run_s_ceiling",),
    ),
    Break(
        "C-40",
        RUN,
        "if call.ap and call.st == 'w' then close_approval(",
        "if call.ap and status == 'x' then close_approval(",
        ("scripts/test_cancel_run.py::test_a_run_not_begun_ends_with_its_requests_and_arguments",),
    ),
    Break(
        "C-41",
        "ledger/lua/lib/expire.lua",
        "if call.st == 'w' and call.ex <= R.now then",
        "if call.st == 'w' and call.ex <= 0 then",
        (
            "scripts/test_decide_approval.py::test_a_late_decision_writes_the_expiry_though_no_sweep_ran",
            "scripts/test_read_run.py::test_a_read_that_meets_an_expired_request_writes_the_expiry",
            "scripts/test_read_approvals.py::test_what_has_expired_is_written_so_and_not_listed_as_pending",
        ),
    ),
    Break(
        "C-41",
        DECIDE,
        "if approval.ex <= now then",
        "if approval.ex <= 0 then",
        ("scripts/test_decide_approval.py::test_a_late_decision_writes_the_expiry_though_no_sweep_ran",),
    ),
    Break(
        "C-41",
        DECIDE,
        "if approval.st == wanted and approval.by == q.by then",
        "if approval.st == wanted then",
        (
            "scripts/test_decide_approval.py::test_the_first_decision_wins",
            "integration/test_service_approvals.py::test_of_many_people_at_once_one_decides",
        ),
    ),
    Break(
        "C-42",
        DECIDE,
        "if not q.rq and (q.by == approval.p or q.by == approval.u) then",
        "if not q.rq and q.by == approval.p then",
        ("scripts/test_decide_approval.py::test_neither_principal_nor_user_decides_unless_that_is_allowed",),
    ),
    Break(
        "C-42",
        DECIDE,
        "if not approval or approval.tn ~= q.tn then",
        "if not approval then",
        ("scripts/test_decide_approval.py::test_another_tenant_s_request_is_unknown",),
    ),
    Break(
        "C-44",
        DECIDE,
        "else\n  save_run(R)",
        "else",
        (
            "scripts/test_decide_approval.py"
            "::test_a_decision_made_while_the_session_has_no_owner_or_another_is_not_lost",
        ),
    ),
    Break(
        "C-44",
        "ledger/lua/propose_call.lua",
        "return o < call_count(R) and o or nil",
        "return nil",
        (
            "scripts/test_propose_call.py::test_the_same_proposal_finds_the_same_call",
            "scripts/test_propose_call.py::test_after_an_owner_change_a_pending_request_is_found_and_not_asked_twice",
        ),
    ),
    Break(
        "C-60",
        ADMIT,
        "if known.c ~= q.c then refuse('DELIVERY_MISMATCH'",
        "if false then refuse('DELIVERY_MISMATCH'",
        (
            "scripts/test_admit_delivery.py::test_other_content_under_the_same_delivery_is_refused",
            "cases/test_c23_other_content.py::test_while_it_runs_and_after_it_ended",
        ),
    ),
    Break(
        "C-60",
        ADMIT,
        "if entry and REFUSAL[entry.s] then",
        "if entry and false then",
        (
            "scripts/test_admit_delivery.py"
            "::test_after_its_end_the_same_delivery_runs_anew_under_its_turn_and_repeats_nothing",
        ),
    ),
    Break(
        "C-60",
        BEGIN,
        "if code then return refuse_call(R, i, code) end",
        "if code and not known then return refuse_call(R, i, code) end",
        ("scripts/test_begin_next.py::test_what_another_run_of_the_turn_recorded_meanwhile_is_refused_at_begin",),
    ),
    Break(
        "C-61",
        ADMIT,
        "elseif q.lk and not S.fresh then",
        "elseif q.lk and S.fresh then",
        (
            "scripts/test_admit_delivery.py::test_identical_requests_without_a_delivery_id_coalesce_while_one_lives",
            "integration/test_service_trigger.py::test_identical_live_requests_without_an_id_are_one_run",
        ),
    ),
    Break(
        "C-62",
        "ledger/lua/lib/view.lua",
        "local turn = R.state.t and turn_id(S, R.state.t) or ''",
        "local turn = ''",
        (
            "integration/test_service_runs.py::test_ndjson_ends_with_done_and_sse_with_run_completed",
            "integration/test_service_trigger.py"
            "::test_a_turn_is_made_with_the_first_mutation_and_can_be_continued_by_its_owner_only",
        ),
    ),
    Break(
        "C-62",
        BEGIN,
        "s.t, delivery.t = S.meta.tc, S.meta.tc",
        "delivery.t = S.meta.tc",
        ("scripts/test_begin_next.py::test_the_first_mutation_makes_the_turn_and_the_second_joins_it",),
    ),
    Break(
        "C-63",
        BEGIN,
        "if S.meta.g ~= m.g then return nil, 'logical_turn_unavailable' end",
        "",
        ("scripts/test_begin_next.py::test_a_run_of_another_session_generation_is_refused",),
    ),
    Break(
        "C-63",
        BEGIN,
        "if not turn then return nil, 'logical_turn_unavailable' end",
        "if not turn then turn = { a = m.a, u = m.u, d = { m.d }, rv = 0, ms = {}, lv = 1, at = R.now } end",
        ("scripts/test_begin_next.py::test_a_run_admitted_under_a_turn_that_is_gone_makes_no_new_one",),
    ),
    Break(
        "C-63",
        ADMIT,
        "if not turn or turn.a ~= q.a or turn.u ~= q.u then refuse(",
        "if not turn then refuse(",
        ("scripts/test_admit_delivery.py::test_unknown_foreign_and_disguised_turns_are_refused",),
    ),
)
