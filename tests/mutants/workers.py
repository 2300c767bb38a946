"""Breaks of the workers and of the store's clients."""

from __future__ import annotations

from tests.mutants.breaks import Break

OWNER, RETRYING = "workers/owner.py", "workers/retrying.py"
SYNC, WIRE, LANE, GROUP = (f"ledger/store/{name}.py" for name in ("sync", "wire", "lane", "group"))
OWNER_TESTS, SYNC_TESTS = "integration/test_worker_owner.py", "integration/test_store_sync.py"
GROUP_TESTS = "integration/test_store_group.py"

WORKERS = (
    Break(
        "C-04",
        OWNER,
        "if not (as_asked and _as_approved(begun)):",
        "if not as_asked:",
        (f"{OWNER_TESTS}::test_arguments_that_changed_in_the_store_are_never_sent",),
    ),
    Break(
        "C-20",
        WIRE,
        "reply[0] >= local and",
        "reply[0] >= 0 and",
        (f"{SYNC_TESTS}::test_only_the_configured_numbers_confirm",),
    ),
    Break(
        "C-20",
        GROUP,
        "        waits = self._settings().waits_aof(self._server.report)",
        "        waits = False",
        (f"{SYNC_TESTS}::test_a_write_that_no_replica_has_is_not_told_as_done",),
    ),
    Break(
        "C-20",
        GROUP,
        "                one.reply, one.aof = reply, replies[-1] if waits else NOT_ASKED",
        "                one.reply, one.aof = reply, replies[-1] if waits and one is left[0] else NOT_ASKED",
        (f"{GROUP_TESTS}::test_all_of_a_group_hear_that_it_was_not_confirmed",),
    ),
    Break(
        "C-22",
        GROUP,
        "            left = [one for one in left if is_missing_script(one.reply)]",
        "            left = group if any(is_missing_script(one.reply) for one in left) else []",
        (f"{GROUP_TESTS}::test_only_calls_whose_script_was_lost_are_sent_again",),
    ),
    Break(
        "C-26",
        GROUP,
        'raise StoreUnavailable("the store is too busy", sent=False)',
        'raise StoreUnavailable("the store is too busy", sent=True)',
        (f"{GROUP_TESTS}::test_a_call_that_waited_too_long_is_never_sent",),
    ),
    Break(
        "C-21",
        "ledger/store/connections.py",
        "self._checked_at <= RECHECK_SECONDS:",
        "self._checked_at <= 1e9:",
        (f"{SYNC_TESTS}::test_settings_that_change_under_a_running_process_stop_it_until_they_are_right",),
    ),
    Break(
        "C-21",
        LANE,
        "        return time.monotonic() - self.checked_at > RECHECK_SECONDS",
        "        return False",
        (
            "integration/test_store_async.py"
            "::test_settings_that_change_under_a_running_process_stop_it_until_they_are_right",
        ),
    ),
    Break(
        "C-22",
        RETRYING,
        "            if time.monotonic() + pause >= give_up:",
        "            if pause > 0:",
        ("faults/test_lost_replies.py::test_replies_to_a_worker",),
    ),
    Break(
        "C-23",
        OWNER,
        "if time.monotonic() - asked_at > self.shared.settings.checkpoint_wait:",
        "if time.monotonic() - asked_at > 1e9:",
        (f"{OWNER_TESTS}::test_an_intent_confirmed_too_late_is_put_back",),
    ),
    Break(
        "C-24",
        RETRYING,
        "    except (*NOT_NOW, StoreWentBack) as error:",
        "    except StoreWentBack as error:",
        (f"{OWNER_TESTS}::test_a_report_outlasts_a_store_that_is_away_and_one_that_cannot_promise",),
    ),
    Break(
        "C-25",
        SYNC,
        "                    raise unconfirmed",
        "                    pass",
        (f"{SYNC_TESTS}::test_a_write_that_no_replica_has_is_not_told_as_done",),
    ),
    Break(
        "C-23",
        "workers/claiming.py",
        "            self._ask_soon(shard, 0, promise=True)",
        "            self._ask_soon(shard, 1, promise=True)",
        ("integration/test_worker_claiming.py::test_nothing_is_claimed_where_nothing_is_known_to_be_ready",),
    ),
    Break(
        "C-26",
        RETRYING,
        "NOT_NOW = (StoreUnavailable, StoreUnsafe)",
        "NOT_NOW = (StoreUnavailable,)",
        (f"{OWNER_TESTS}::test_a_report_outlasts_a_store_that_is_away_and_one_that_cannot_promise",),
    ),
    Break(
        "C-27",
        SYNC,
        "                self.view.adopt(call.shard, changed.store_id)",
        "                pass",
        (f"{SYNC_TESTS}::test_threads_follow_a_store_that_was_accepted",),
    ),
    Break(
        "C-27",
        "ledger/store/lanes.py",
        "            self._view.confirmed(call.shard, n, waiting.store_id)",
        "            pass",
        ("integration/test_store_async.py::test_a_store_accepted_under_many_calls_is_followed_by_all",),
    ),
    Break(
        "C-30",
        "workers/leases.py",
        "            if now >= everybody_at:",
        "            if now > 0:",
        ("integration/test_worker_leases.py::test_news_of_one_session_never_puts_off_the_renewal_of_another",),
    ),
    Break(
        "C-31",
        "workers/claiming.py",
        "        if self._hinted:",
        "        if False:",
        ("integration/test_worker_claiming.py::test_asked_to_look_while_switching_off_stays_on",),
    ),
    Break(
        "C-31",
        "ledger/store/hints.py",
        '        raise RedisConnectionError("no answer on the connection for hints") from None',
        "        return await stream.read()",
        ("integration/test_worker_leases.py::test_a_signal_connection_that_died_silently_is_replaced",),
    ),
    Break(
        "C-32",
        "workers/leases.py",
        "                owner.lose()",
        "                pass",
        ("integration/test_worker_leases.py::test_a_renewal_that_another_owner_answers_loses_the_session",),
    ),
    Break(
        "C-33",
        "ledger/lua/lib/report.lua",
        "apply_status(S, R, current.t, current.m, entry, 'u', nil, now)",
        "apply_status(S, R, current.t, current.m, entry, 'a', nil, now)",
        ("integration/test_worker_process.py::test_a_session_whose_path_fails_is_taken_up_again",),
    ),
    Break(
        "C-34",
        OWNER,
        "        return not self.shared.stopping.is_set() or",
        "        return True or",
        (f"{OWNER_TESTS}::test_a_stop_begins_nothing_more",),
    ),
    Break(
        "C-34",
        "workers/runtime.py",
        "        await asyncio.wait([claiming], timeout=shared.settings.checkpoint_wait)",
        "        await asyncio.sleep(0)",
        ("integration/test_worker_process.py::test_what_a_claim_brings_during_a_stop_is_worked_off",),
    ),
    Break(
        "C-53",
        OWNER,
        "if self.lost or left < self.shared.settings.lease_margin:",
        "if self.lost:",
        (f"{OWNER_TESTS}::test_the_last_check_stops_a_call_whose_intent_is_written",),
    ),
    Break(
        "C-53",
        OWNER,
        "if self.lost or left < self.shared.settings.lease_margin:",
        "if left < self.shared.settings.lease_margin:",
        (f"{OWNER_TESTS}::test_the_last_check_stops_a_call_whose_intent_is_written",),
    ),
    Break(
        "C-55",
        OWNER,
        "if begun.step == self._cancelled or self.shared.past_drain:",
        "if self.shared.past_drain:",
        (f"{OWNER_TESTS}::test_a_cancel_stops_the_call_of_its_own_step_only",),
    ),
    Break(
        "C-56",
        OWNER,
        "        if begun.step <= self._entered:",
        "        if begun.step < 0:",
        (f"{OWNER_TESTS}::test_an_attempt_offered_twice_is_sent_once",),
    ),
)
