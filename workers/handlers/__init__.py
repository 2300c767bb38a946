"""Turn handlers: host functions that call tools under the ledger's rules (contract, section 16)."""

from workers.handlers.context import AsyncExecutor, HandlerContext, SyncExecutor
from workers.handlers.results import (
    CallDenied,
    CallExpired,
    CallRefused,
    CallResult,
    CeilingReached,
    HandlerStopped,
    OwnerLost,
    ReplayDiverged,
    RunCancelled,
)

__all__ = [
    "AsyncExecutor",
    "CallDenied",
    "CallExpired",
    "CallRefused",
    "CallResult",
    "CeilingReached",
    "HandlerContext",
    "HandlerStopped",
    "OwnerLost",
    "ReplayDiverged",
    "RunCancelled",
    "SyncExecutor",
]
