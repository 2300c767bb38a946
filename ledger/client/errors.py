"""Problem documents of the API as this package's errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ledger.errors import InvalidRequest, LedgerError, Refused, StoreError, StoreUnavailable

_UNAVAILABLE = ("store_unavailable", "store_unconfirmed")


class ServiceUnavailable(LedgerError):
    """The front door does not answer, or not now. What was sent may have arrived: send it again with the same ids."""

    code = "service_unavailable"
    retryable: ClassVar[bool] = True


def from_problem(status: int, problem: Mapping[str, Any], retry_after: float | None) -> LedgerError:
    """The error for a reply that is not a success. `extra` has `status`, `problem` and `retry_after` (seconds)."""
    code = str(problem.get("code") or f"http_{status}")
    text = str(problem.get("detail") or problem.get("title") or f"the front door answered {status}")
    kind: type[LedgerError] = Refused
    if status == 400:
        kind = InvalidRequest
    elif status == 503 and code in _UNAVAILABLE:
        kind = StoreUnavailable
    elif status == 503 and code.startswith("store_"):
        kind = StoreError
    elif status in (502, 503, 504):
        kind = ServiceUnavailable
    elif status >= 500:
        kind = LedgerError
    return kind(text, code=code, status=status, problem=dict(problem), retry_after=retry_after)
