"""The RQ jobs. They name no shard and hold no data: a drain job only switches claiming on (architecture, step 4)."""

from __future__ import annotations

from collections.abc import Callable

from ledger.faultpoints import reach

_look: Callable[[], bool] | None = None
_pass_on: Callable[[], None] | None = None


def bind(look: Callable[[], bool], pass_on: Callable[[], None]) -> None:
    """Connects the jobs of this process to its loop; called once at start."""
    global _look, _pass_on  # RQ calls jobs by name, so the process is the only place to keep this
    _look, _pass_on = look, pass_on


def drain(passed_on: bool = False) -> None:
    """Looks for ready sessions. A full worker passes the job on once; after that the sweep finds what is left."""
    if _look is None:
        raise RuntimeError("drain runs only inside `mutation-ledger worker`")
    reach("wake.heard")
    if not _look() and not passed_on and _pass_on is not None:
        _pass_on()
