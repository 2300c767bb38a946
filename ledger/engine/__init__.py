"""The host side in Python: hand in deliveries, decide approvals, read the ledger; talks to the store directly.

Keeps the names that hosts of a single-process engine know (contract, section 16). `ledger.client` does the same over
HTTP, for hosts that should not reach the store.
"""

from ledger.budget import ApprovedMutationBudget
from ledger.engine.adapter import Adapter
from ledger.engine.engine import Engine
from ledger.engine.human import HumanDecision, HumanRequest
from ledger.engine.messages import ContinuationUnavailable, IncomingMessage, TurnResult
from ledger.engine.sessions import SessionManager
from ledger.readbacks import ReadbackAnswer, ReadbackRequest

__all__ = [
    "Adapter",
    "ApprovedMutationBudget",
    "ContinuationUnavailable",
    "Engine",
    "HumanDecision",
    "HumanRequest",
    "IncomingMessage",
    "ReadbackAnswer",
    "ReadbackRequest",
    "SessionManager",
    "TurnResult",
]
