"""Named points on the path where a test may make this process die, freeze, fail or dawdle.

Nothing happens unless `MUTATION_LEDGER_FAULT` is set when the process starts: a comma-separated list of
`name:nth:action`, where the nth time the point is reached (from 1) does `kill` (SIGKILL to itself), `stop` (SIGSTOP,
until somebody continues it), `raise` (InjectedFault) or `sleep=<milliseconds>` (the thread, and a loop in it, stands).
A forked process counts anew. `MUTATION_LEDGER_FAULT_LOG` names a file that gets a line `<pid> <name> <action>` before
each of them happens, so that a test counts what it really did.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

VARIABLE = "MUTATION_LEDGER_FAULT"
LOG_VARIABLE = "MUTATION_LEDGER_FAULT_LOG"


class InjectedFault(Exception):
    """Raised by a point armed with `raise`."""


@dataclass(slots=True)
class _Fault:
    name: str
    left: int
    action: str


class _Armed:
    def __init__(self, text: str, log: str | None) -> None:
        self._faults = [_parse(part) for part in text.split(",")]
        self._log = log
        self._lock = threading.Lock()

    def reach(self, name: str) -> None:
        for fault in self._faults:
            if fault.name == name and self._is_due(fault):
                self._note(fault)
                _act(fault)

    def _is_due(self, fault: _Fault) -> bool:
        with self._lock:
            fault.left -= 1
            return fault.left == 0

    def _note(self, fault: _Fault) -> None:
        if self._log is None:
            return
        file = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{os.getpid()} {fault.name} {fault.action}\n".encode())
        finally:
            os.close(file)


def _parse(part: str) -> _Fault:
    name, nth, action = part.strip().split(":")
    return _Fault(name, int(nth), action)


def _act(fault: _Fault) -> None:
    match fault.action.partition("="):
        case ("kill", _, _):
            os.kill(os.getpid(), signal.SIGKILL)
        case ("stop", _, _):
            # To this thread: sent to the process, it would stop another one first, and this one a little later.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        case ("raise", _, _):
            raise InjectedFault(fault.name)
        case ("sleep", _, milliseconds):
            time.sleep(int(milliseconds) / 1000)
        case _:
            raise ValueError(f"unknown fault action {fault.action!r}")


def _nothing(_name: str) -> None:
    """What an unarmed process does at every point."""


def _chosen(text: str | None, log: str | None) -> Callable[[str], None]:
    return _Armed(text, log).reach if text else _nothing


reach: Callable[[str], None] = _chosen(os.environ.get(VARIABLE), os.environ.get(LOG_VARIABLE))
"""Says that the path has come to the point of that name."""
