"""The peers: what they are called, what must be installed for them, what they run on, what they are measured against.

They live in environments of their own under `.bench/`, so that nothing of them can reach the product's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.bench.drivers import ROOT
from tests.bench.measure import Goal

HOME = ROOT / ".bench"
PEERS = Path(__file__).with_name("peers")
NODE = HOME / "node"
RESTATE_SERVER = NODE / "node_modules/@restatedev/restate-server-linux-x64/bin/restate-server"
Backend = Literal["valkey", "postgres", "directory"]


@dataclass(frozen=True, slots=True)
class Contestant:
    """One peer. `packages` go into the environment `.bench/<name>`; without any it runs in ours."""

    name: str
    title: str
    script: str
    goal: Goal | None
    packages: tuple[str, ...] = ()
    backend: Backend = "valkey"
    first: int = 128
    """Units of its first slice: slow ones get few."""

    @property
    def python(self) -> Path:
        """The interpreter that runs it."""
        return HOME / self.name / "bin" / "python" if self.packages else Path(sys.executable)

    @property
    def installed(self) -> bool:
        """Whether it can run."""
        if self.script.endswith(".mjs"):
            return (NODE / "node_modules" / self.name).is_dir()
        return self.python.exists()

    def command(self, address: str) -> list[str]:
        """What starts its driver on a store."""
        program = "node" if self.script.endswith(".mjs") else str(self.python)
        return [program, str(PEERS / self.script), address]


RQ = Contestant("rq", "RQ, a job a mutation", "rq_peer.py", Goal(10), first=64)
DRAMATIQ = Contestant("dramatiq", "Dramatiq", "dramatiq_peer.py", Goal(1.5), ("dramatiq[redis]", "hiredis"))
BULLMQ = Contestant("bullmq", "BullMQ (Node)", "bullmq_peer.mjs", Goal(0.5), first=512)
CELERY = Contestant("celery", "Celery", "celery_peer.py", Goal(5), ("celery[redis]",))
DOCKET = Contestant("docket", "pydocket", "docket_peer.py", Goal(3), ("pydocket",))
ARQ = Contestant("arq", "arq", "arq_peer.py", None, ("arq",))
DBOS = Contestant("dbos", "DBOS on Postgres", "dbos_peer.py", Goal(5), ("dbos", "psycopg-binary"), "postgres", 64)
EFFECT = Contestant(
    "effect-ledger", "effect-ledger on SQLite", "effect_ledger_peer.py", Goal(5), ("effect-ledger",), "directory", 64
)
AGENT = Contestant(
    "agent-ledger",
    "agent-ledger on Postgres",
    "agent_ledger_peer.py",
    None,
    ("agent-ledger[postgres]",),
    "postgres",
    64,
)
FEW = (RQ, DRAMATIQ, BULLMQ)
"""Measured by `make bench`."""
OTHERS = (CELERY, DOCKET, ARQ, DBOS, EFFECT, AGENT)
"""Measured by `make bench-peers` beside the few."""
RESTATE_PACKAGES = ("restate-sdk", "hypercorn")
RESTATE_PYTHON = HOME / "restate" / "bin" / "python"
NODE_PACKAGES = {"few": ("bullmq", "ioredis"), "all": ("bullmq", "ioredis", "@restatedev/restate-server")}


def environments(contestants: Sequence[Contestant]) -> dict[str, tuple[str, ...]]:
    """Python environments to make, by name."""
    return {one.name: one.packages for one in contestants if one.packages}
