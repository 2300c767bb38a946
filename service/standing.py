"""What `/metrics` shows of the store: the same figures from every front door, read when somebody asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ledger.counts import ATTEMPTS, READBACKS, RECLAIMED, Standing, standing, standing_commands
from ledger.errors import LedgerError
from ledger.store import SyncStore

log = structlog.get_logger(__name__)


class StoreCollector(Collector):
    """Reads the store at each collection; one that is away costs these figures, not the page."""

    def __init__(self, store: Callable[[], SyncStore], tenants: Sequence[str]) -> None:
        self._store = store
        self._tenants = tenants

    def describe(self) -> Iterator[Metric]:
        """None: registering must not read the store."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """The store's counters and gauges, and whether it answered."""
        found = self._read()
        up = GaugeMetricFamily("mutation_ledger_store_up", "Whether the store answered this page.")
        up.add_metric([], found is not None)
        yield up
        if found is not None:
            yield from _families(found)

    def _read(self) -> Standing | None:
        try:
            store = self._store()
            store.open()
            replies = store.command(standing_commands(store.settings.redis.shards, self._tenants))
        except LedgerError as error:
            log.warning("metrics_without_store", code=error.code)
            return None
        return standing(replies, self._tenants)


def _families(found: Standing) -> Iterator[Metric]:
    attempts = CounterMetricFamily(
        "mutation_ledger_attempts", "Attempts that ended on workers, by verdict.", labels=["verdict"]
    )
    late = CounterMetricFamily(
        "mutation_ledger_late_reports",
        "Attempts that reported their end after somebody had reconciled their outcome: an alarm.",
        labels=["verdict"],
    )
    readbacks = CounterMetricFamily("mutation_ledger_readbacks", "Answers of registered readbacks.", labels=["answer"])
    for family, counts in (
        (attempts, found.counts.get(ATTEMPTS, {})),
        # Always there, so that an alarm can be set on its growth.
        (late, dict.fromkeys(("completed", "failed", "outcome_unknown", "not_executed"), 0) | dict(found.late_reports)),
        (readbacks, found.counts.get(READBACKS, {})),
    ):
        for label, count in sorted(counts.items()):
            family.add_metric([label], count)
        yield family
    reclaimed = CounterMetricFamily(
        "mutation_ledger_reclaimed_sessions", "Sessions taken from workers that disappeared."
    )
    reclaimed.add_metric([], found.counts.get(RECLAIMED, {}).get("", 0))
    yield reclaimed
    for name, text, value in (
        ("ready_sessions", "Sessions with work that no worker owns.", found.ready),
        ("owned_sessions", "Sessions that a worker owns.", found.owned),
        ("pending_approvals", "Calls that wait for a person.", found.pending),
        ("unknown_outcomes", "Unknown outcomes that wait to be reconciled.", found.unknown),
    ):
        gauge = GaugeMetricFamily(f"mutation_ledger_{name}", text)
        gauge.add_metric([], value)
        yield gauge
