"""One blueprint an area."""

from service.routes import approvals, contracts, health, host, outcomes, runs, sessions, trigger

BLUEPRINTS = (
    trigger.api,
    runs.api,
    approvals.api,
    outcomes.api,
    host.api,
    sessions.api,
    contracts.api,
    health.api,
)
