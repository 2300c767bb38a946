"""Every error the ledger raises, as one tree.

    LedgerError
    ├── InvalidRequest          the caller's input has the wrong shape (HTTP 400)
    ├── Refused                 the rules say no; `code` says which rule (HTTP 403, 404, 409, 410, 422, 429)
    ├── ConfigError             a setting is wrong or missing; the message names the fix
    └── StoreError
        ├── StoreUnavailable    the store cannot promise right now; retry later (HTTP 503)
        ├── Unconfirmed         written perhaps, not confirmed on disk in time; retry with the same ids (HTTP 503)
        ├── StoreUnsafe         the store's settings cannot keep the promise (refused at start)
        └── StoreWentBack       the store lost confirmed writes; a person must accept it (C-27)

`code` is stable and part of the public surface. `retryable` says whether the same call, sent again with the
same ids, may succeed without anybody changing anything. Driver errors are translated once, in `ledger.store`.
"""

from __future__ import annotations

from typing import Any, ClassVar


class LedgerError(Exception):
    """Base of all errors raised by this package. Never holds argument text or secrets."""

    code: str = "ledger_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, code: str | None = None, **extra: Any) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.extra = extra


class InvalidRequest(LedgerError):
    """The request's shape is wrong: unknown field, wrong type, bad JSON. Nothing was stored."""

    code = "invalid_request"


class Refused(LedgerError):
    """A rule refused the request; `code` names it and nothing was changed."""

    code = "refused"


class ConfigError(LedgerError):
    """A setting cannot be used; the message is one line and names the fix."""

    code = "config_error"


class StoreError(LedgerError):
    """The store did not do what was asked."""

    code = "store_error"


class StoreUnavailable(StoreError):
    """The store is gone, loading, full, read-only or too slow. `extra["sent"]` says whether bytes left."""

    code = "store_unavailable"
    retryable = True


class Unconfirmed(StoreUnavailable):
    """The write may have happened but was not confirmed on disk in time (C-20)."""

    code = "store_unconfirmed"


class StoreUnsafe(StoreError):
    """The store's settings cannot keep the durability promise (C-20, C-21)."""

    code = "store_unsafe"


class StoreWentBack(StoreError):
    """The store lost writes that were confirmed; nothing runs until `mutation-ledger store accept` (C-27)."""

    code = "store_went_back"
    store_id: bytes | None = None
    """Under which store id a look at a server found it; None: that of the shard that was called."""
