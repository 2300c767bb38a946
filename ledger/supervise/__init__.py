"""Running several processes as one service: start, watch, restart, stop in order."""

from __future__ import annotations

from ledger.supervise.process import ProcessChild
from ledger.supervise.supervisor import Supervisor

__all__ = ["ProcessChild", "Supervisor"]
