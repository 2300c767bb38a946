"""From the configuration's units to those of admission."""

from __future__ import annotations

import pytest

from ledger.config import Config
from ledger.policy import from_config
from ledger.proposing import admission_limits


@pytest.mark.proves("C-50", "C-71")
def test_limits_follow_the_configuration() -> None:
    config = Config.model_validate(
        {
            "service": {"max_queued_runs": 7, "max_pending_approvals": 8},
            "timing": {"request_ceiling_seconds": 100, "session_seconds": 50.5},
            "policy": {"approval_timeout_seconds": 1.25},
            "retention": {"journal_hours": 2, "session_inactivity_days": 3, "tombstone_days": 0.5},
        }
    )
    policy = from_config(config)
    limits = admission_limits(config, policy, b"k" * 32)
    assert (limits.ceiling_ms, limits.session_ms, limits.approval_ms) == (100_000, 50_500, 1250)
    assert (limits.journal_ms, limits.inactivity_ms, limits.tombstone_ms) == (7_200_000, 259_200_000, 43_200_000)
    assert (limits.max_live_runs, limits.max_pending_approvals) == (7, 8)
    assert (limits.policy_digest, limits.tombstone_key) == (policy.digest, b"k" * 32)
