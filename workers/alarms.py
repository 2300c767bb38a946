"""What an operator must hear of: a counter for the dashboards, and a line in the log (C-91)."""

from __future__ import annotations

import structlog
from prometheus_client import Counter

from ledger.attempts import Begun
from workers.tools.results import Verdict

log = structlog.get_logger(__name__)

LATE_REPORTS = Counter(
    "mutation_ledger_late_reports",
    "Attempts that reported their end after somebody had reconciled their outcome",
    ["verdict"],
)


def late_report(begun: Begun, verdict: Verdict) -> None:
    """An attempt reported after its outcome was reconciled: kept as evidence, changes nothing.

    If the two contradict each other, somebody said `not executed` of a call that was.
    """
    LATE_REPORTS.labels(verdict.value).inc()
    log.error(
        "late_report",
        verdict=verdict.value,
        run_id=begun.run_id,
        index=begun.index,
        mutation_id=begun.mutation_id,
        attempt=begun.attempt,
    )
