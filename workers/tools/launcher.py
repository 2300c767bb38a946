"""Start a stdio server, and let nothing of it live on.

Run by path under `python -I -S`, so it starts in milliseconds and imports only the standard library. It stays
as the server's parent for two reasons: the server must go when the worker is killed (some servers ignore the
end of their input, and a death signal does not reach grandchildren), and a server that ignores the end of its
input must be put down without anybody waiting for it.

Arguments: the worker's pid, then the command. SIGTERM asks for an end; a dead worker does the same, with more
patience, because a call that the server has accepted may be in the middle of its effect.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator

# From the end of input to SIGTERM, and from SIGTERM to SIGKILL; together under the ten seconds after which a
# killed worker may have left no process behind (case C05).
ASKED_GRACE_SECONDS = 2.0
ORPHANED_GRACE_SECONDS = 5.0
TERM_GRACE_SECONDS = 2.0

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ORPHANED = signal.SIGUSR1
SIGNALS = {signal.SIGCHLD, signal.SIGTERM, ORPHANED}


def prctl(option: int, value: int) -> None:
    """One Linux process control; elsewhere nothing, and the end of input has to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def start(command: list[str]) -> int:
    """Fork and exec the server in a process group of its own; it dies with this launcher."""
    launcher = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setpgid(0, 0)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == launcher:
            signal.pthread_sigmask(signal.SIG_SETMASK, set())
            os.execvp(command[0], command)  # noqa: S606  the operator's configured command, no shell
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode())
    os._exit(127)


def children() -> Iterator[int]:
    """Pids whose parent is this process; orphaned grandchildren are among them (subreaper)."""
    me = str(os.getpid())
    for name in os.listdir("/proc"):
        if name.isdigit():
            with (
                contextlib.suppress(OSError, IndexError),
                open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat,
            ):
                # The command name may hold spaces and brackets; the fields after the last one do not.
                if stat.read().rpartition(")")[2].split()[1] == me:
                    yield int(name)


def reap(server: int) -> bool:
    """Collect whoever has ended; whether the server itself was among them."""
    ended = False
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            return ended
        ended = ended or pid == server


def watch(server: int) -> None:
    """Wait until the server ends by itself, or until its time is over."""
    deadline: float | None = None
    asked = False
    while True:
        wait = 3600.0 if deadline is None else max(deadline - time.monotonic(), 0.0)
        caught = signal.sigtimedwait(SIGNALS, wait)
        if reap(server):
            return
        if caught is None and deadline is not None:
            if asked:
                return
            asked, deadline = True, time.monotonic() + TERM_GRACE_SECONDS
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server, signal.SIGTERM)
        elif caught is not None and caught.si_signo != signal.SIGCHLD and not asked:
            grace = ORPHANED_GRACE_SECONDS if caught.si_signo == ORPHANED else ASKED_GRACE_SECONDS
            deadline = min(deadline or float("inf"), time.monotonic() + grace)


def kill_rest() -> None:
    """SIGKILL every descendant, generation by generation, until none is left."""
    while True:
        for pid in children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def main() -> None:
    """Entry: `launcher.py WORKER_PID COMMAND [ARG...]`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, ORPHANED)
    # The worker may have died before the line above; then nobody would ever signal us.
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
    server = start(sys.argv[2:])
    nothing = os.open(os.devnull, os.O_RDWR)
    # The server's end of output must show as soon as the server is gone, not when this process is.
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    watch(server)
    kill_rest()


if __name__ == "__main__":
    main()
