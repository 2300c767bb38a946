"""The rules of the mutation ledger: identity, states, durable scripts, outcomes, the reader's side of streams.

The names that hosts need are here too; each is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ledger.budget import ApprovedMutationBudget
    from ledger.engine import (
        Adapter,
        Engine,
        HumanDecision,
        HumanRequest,
        IncomingMessage,
        SessionManager,
        TurnResult,
    )
    from ledger.identity import mutation_identity

__version__ = "0.1.0"

_HOMES = {
    "Adapter": "ledger.engine",
    "ApprovedMutationBudget": "ledger.budget",
    "Engine": "ledger.engine",
    "HumanDecision": "ledger.engine",
    "HumanRequest": "ledger.engine",
    "IncomingMessage": "ledger.engine",
    "SessionManager": "ledger.engine",
    "TurnResult": "ledger.engine",
    "mutation_identity": "ledger.identity",
}

__all__ = [
    "Adapter",
    "ApprovedMutationBudget",
    "Engine",
    "HumanDecision",
    "HumanRequest",
    "IncomingMessage",
    "SessionManager",
    "TurnResult",
    "__version__",
    "mutation_identity",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
