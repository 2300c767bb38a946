"""Prometheus metrics of one front-door process. Labels are few and known: never ids, tools or tenants."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Metrics:
    """The counters of one app; each app has a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "mutation_ledger_requests",
            "Requests answered, by route, method and status.",
            ("route", "method", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "mutation_ledger_request_seconds",
            "Time until the answer began, by route.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.admissions = Counter(
            "mutation_ledger_admissions",
            "Deliveries handed in, by result: new, attached, redelivered, or the problem's code.",
            ("result",),
            registry=self.registry,
        )
        self.decisions = Counter(
            "mutation_ledger_decisions",
            "Decisions handed in, by result: decided, repeated, or the problem's code.",
            ("result",),
            registry=self.registry,
        )
        self.open_streams = Gauge(
            "mutation_ledger_open_streams", "Streams open in this process.", registry=self.registry
        )

        # Looking a child up by its labels costs more than counting; routes, methods and statuses are few.
        self._of_route: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Counts one request."""
        found = self._of_route.get((route, method, status))
        if found is None:
            found = self.requests.labels(route, method, str(status)), self.seconds.labels(route)
            self._of_route[route, method, status] = found
        requests, duration = found
        requests.inc()
        duration.observe(seconds)

    def text(self) -> bytes:
        """Everything in the text format."""
        return generate_latest(self.registry)
