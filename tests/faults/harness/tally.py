"""What one run of a row came to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tests.faults.harness.world import World


@dataclass
class Tally:
    """Faults by kind, calls that tools saw, what was wrong. `figures` are measurements of the row's own.

    `acknowledged` are answers that were held against the store afterwards (I3): admissions, decisions, statuses.
    """

    faults: dict[str, int] = field(default_factory=dict)
    mutations: int = 0
    violations: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    acknowledged: int = 0

    @classmethod
    def of(cls, world: World, **figures: Any) -> Tally:
        """The sum of a world."""
        return cls(dict(world.faults), world.mutations(), list(world.violations), figures, world.acknowledged())

    @property
    def injected(self) -> int:
        """All faults."""
        return sum(self.faults.values())

    def as_json(self) -> dict[str, Any]:
        """For the results file."""
        return asdict(self)
