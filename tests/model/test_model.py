"""Any order of deliveries, decisions, claims, reports, losses and reconciliations keeps the contract."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.endings import EndingMachine
from tests.support.valkey import ValkeyProcess

LONG = os.environ.get("MUTATION_LEDGER_TESTS") == "long"
SETTINGS = settings(
    max_examples=500 if LONG else 50,
    stateful_step_count=50 if LONG else 30,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@pytest.mark.timeout(1800)
@pytest.mark.proves(
    "C-10",
    "C-12",
    "C-13",
    "C-22",
    "C-23",
    "C-24",
    "C-30",
    "C-31",
    "C-32",
    "C-33",
    "C-41",
    "C-60",
    "C-63",
    "C-81",
    "C-82",
    "C-83",
    "C-84",
    "C-91",
    "C-111",
)
def test_the_store_follows_the_contract_s_moves(valkey_session: ValkeyProcess) -> None:
    class Machine(EndingMachine):
        url = valkey_session.url

    run_state_machine_as_test(Machine, settings=SETTINGS)
