"""Breaks of the Lua scripts: limits, session life, metadata, reconciliation, events."""

from __future__ import annotations

from tests.mutants.breaks import Break

ADMIT = "ledger/lua/admit_delivery.lua"
BEGIN = "ledger/lua/lib/begin.lua"
SETTLE = "ledger/lua/settle_attempt.lua"
RECONCILE = "ledger/lua/reconcile_mutation.lua"
SESSION = "ledger/lua/lib/session.lua"
RUN = "ledger/lua/lib/run.lua"
RETIRE = "ledger/lua/lib/retire.lua"
SWEEP = "ledger/lua/sweep_retention.lua"

RETENTION = (
    Break(
        "C-70",
        RETIRE,
        "local TURNS_MAX = 50",
        "local TURNS_MAX = 51",
        ("scripts/test_turn_pruning.py::test_the_oldest_finished_and_settled_turn_goes_and_leaves_tombstones",),
    ),
    Break(
        "C-70",
        RETIRE,
        "if not turn.f or turn.lv > 0 then return nil end",
        "if not turn.f then return nil end",
        (
            "scripts/test_turn_pruning.py::test_a_turn_with_a_live_run_is_never_pruned",
            "interleavings/test_retired.py::test_a_turn_under_a_live_run_is_never_pruned",
        ),
    ),
    Break(
        "C-70",
        BEGIN,
        "local MUTATIONS_MAX = 32",
        "local MUTATIONS_MAX = 33",
        ("scripts/test_begin_next.py::test_the_33rd_mutation_of_a_turn_is_refused_at_begin",),
    ),
    Break(
        "C-70",
        ADMIT,
        "local DELIVERIES_MAX, MUTATIONS_MAX, EARLIER_MAX = 50, 32, 50",
        "local DELIVERIES_MAX, MUTATIONS_MAX, EARLIER_MAX = 51, 33, 50",
        (
            "scripts/test_admit_delivery.py::test_the_51st_delivery_of_a_turn_is_refused_and_known_ones_still_work",
            "scripts/test_admit_delivery.py::test_the_33rd_mutation_of_a_turn_is_refused_before_anybody_is_asked",
        ),
    ),
    Break(
        "C-71",
        ADMIT,
        "if S.meta.lv >= q.lim.q then refuse(",
        "if S.meta.lv > q.lim.q then refuse(",
        (
            "scripts/test_admit_delivery.py::test_live_runs_and_pending_requests_of_a_session_are_bounded",
            "integration/test_service_trigger.py::test_full_queues_are_429_with_a_time_to_come_back",
        ),
    ),
    Break(
        "C-80",
        ADMIT,
        "if not known and protected then S.meta.lm = now end",
        "if protected then S.meta.lm = now end",
        (
            "scripts/test_admit_delivery.py"
            "::test_a_new_mutation_delivery_moves_the_inactivity_clock_and_a_repeat_does_not",
        ),
    ),
    Break(
        "C-80",
        ADMIT,
        "if not known and protected then S.meta.lm = now end",
        "",
        (
            "scripts/test_admit_delivery.py"
            "::test_a_new_mutation_delivery_moves_the_inactivity_clock_and_a_repeat_does_not",
        ),
    ),
    Break(
        "C-81",
        SESSION,
        "return S.meta.lv == 0 and S.meta.lm + S.meta.ia <= now",
        "return S.meta.lm + S.meta.ia <= now",
        ("scripts/test_sweep_retention.py::test_a_session_with_a_live_run_does_not_expire",),
    ),
    Break(
        "C-81",
        SESSION,
        "if S and expired(S, now) then return nil end",
        "",
        (
            "scripts/test_read_session.py::test_unknown_foreign_and_expired_sessions_are_not_there",
            "cases/test_c28_late_copies.py::test_after_its_retention_it_is_gone_and_stays_refused",
        ),
    ),
    Break(
        "C-82",
        RUN,
        "return S and S.meta.g == R.meta.g and S or nil",
        "return S",
        ("integration/test_service_sessions.py::test_runs_of_an_erased_session_stay_unknown_under_its_new_namesake",),
    ),
    Break(
        "C-82",
        RETIRE,
        "for id in string.gmatch(entry.x or '', '%S+') do redis.call('XDEL', K.outcomes, id) end",
        "",
        ("scripts/test_sweep_retention.py::test_nothing_of_an_erased_session_stays_in_any_key",),
    ),
    Break(
        "C-83",
        RUN,
        "if status ~= 'u' or not call.pr then drop_arguments(R, i) end",
        "",
        ("scripts/test_settle_attempt.py::test_arguments_go_when_the_call_ends_unless_its_outcome_is_unknown",),
    ),
    Break(
        "C-83",
        RUN,
        "if status ~= 'u' or not call.pr then drop_arguments(R, i) end",
        "drop_arguments(R, i)",
        ("scripts/test_settle_attempt.py::test_arguments_go_when_the_call_ends_unless_its_outcome_is_unknown",),
    ),
    Break(
        "C-84",
        ADMIT,
        "if redis.call('ZSCORE', K.retired, q.tb) then",
        "if false then",
        (
            "scripts/test_admit_delivery.py::test_a_retired_delivery_is_refused",
            "cases/test_c08_erasure.py::test_b_the_same_delivery_is_refused_for_good",
            "interleavings/test_retired.py::test_an_erased_delivery_never_runs_as_new",
            "interleavings/test_retired.py::test_an_expired_delivery_never_runs_as_new",
            "interleavings/test_retired.py::test_a_pruned_delivery_never_runs_as_new",
        ),
    ),
    Break(
        "C-84",
        "ledger/lua/erase_session.lua",
        "retire_session(S, now, q.td, true)",
        "retire_session(S, now, q.td, false)",
        ("scripts/test_erase_session.py::test_every_delivery_on_record_is_retired",),
    ),
    Break(
        "C-84",
        "ledger/lua/pin_tombstone_key.lua",
        "if pinned and pinned ~= check then",
        "if false then",
        (
            "scripts/test_pin_tombstone_key.py::test_the_first_key_is_the_stores_and_another_is_refused",
            "integration/test_tombstone_key.py::test_a_front_door_with_another_key_admits_and_erases_nothing",
        ),
    ),
    Break(
        "C-90",
        "ledger/lua/attach_metadata.lua",
        "local entry = turn and turn.a == q.a and turn.u == q.u and load_entry(S, number, q.m)",
        "local entry = turn and load_entry(S, number, q.m)",
        ("scripts/test_attach_metadata.py::test_only_the_turn_s_own_agent_and_user_reach_it",),
    ),
    Break(
        "C-91",
        RECONCILE,
        "if q.cp and entry.s == 's' then refuse(",
        "if false then refuse(",
        ("scripts/test_reconcile_mutation.py::test_a_started_attempt_may_be_running",),
    ),
    Break(
        "C-91",
        RECONCILE,
        "if not q.cp and not entry.fh and not q.ds and now <= entry.na then",
        "if not q.cp and not entry.fh and not q.ds and now <= 0 then",
        ("scripts/test_reconcile_mutation.py::test_an_unknown_one_may_be_running_until_its_not_after",),
    ),
    Break(
        "C-91",
        SETTLE,
        "if entry.rc then",
        "if false then",
        ("scripts/test_settle_attempt_late.py::test_a_report_after_reconciliation_is_kept_and_changes_nothing",),
    ),
    Break(
        "C-111",
        SWEEP,
        "redis.call('SET', K.floor, last)",
        "",
        (
            "scripts/test_sweep_retention.py::test_the_floor_is_written_with_the_trimming",
            "integration/test_consumer_gaps.py::test_a_trim_past_the_cursor_is_a_gap",
        ),
    ),
    Break(
        "C-111",
        "ledger/lua/lib/outcome.lua",
        "entry.x = entry.x and (entry.x .. ' ' .. stream_id) or stream_id",
        "entry.x = stream_id",
        ("integration/test_service_sessions.py::test_every_stream_entry_of_an_erased_session_goes",),
    ),
    Break(
        "C-112",
        "ledger/lua/lib/journal.lua",
        "local JOURNAL_MAX = 1000",
        "local JOURNAL_MAX = 10000",
        ("scripts/test_read_journal.py::test_at_its_bound_it_says_truncated_once_and_keeps_what_ends_something",),
    ),
)
