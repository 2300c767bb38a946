"""What an operator must hear of: a line in the log, beside the counter that the store keeps of it (C-91)."""

from __future__ import annotations

import structlog

from ledger.attempts import Begun
from workers.tools.results import Verdict

log = structlog.get_logger(__name__)


def late_report(begun: Begun, verdict: Verdict) -> None:
    """An attempt reported after its outcome was reconciled: kept as evidence, changes nothing.

    If the two contradict each other, somebody said `not executed` of a call that was. The settlement has counted it in
    the store already: `mutation_ledger_late_reports_total`, and a line of `doctor`.
    """
    log.error(
        "late_report",
        verdict=verdict.value,
        run_id=begun.run_id,
        index=begun.index,
        mutation_id=begun.mutation_id,
        attempt=begun.attempt,
    )
