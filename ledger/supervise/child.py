"""Exec a command so that it dies with the process that started it (PR_SET_PDEATHSIG).

Run by path under `python -I -S`: it must start in milliseconds and import nothing but the standard library.
Arguments: the expected parent's pid, then the command. Only Linux has the signal; elsewhere the command is
started all the same, and a leftover is found by its pid file.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Ask the kernel to SIGKILL this process when its parent dies; exits if `parent` is gone already.

    Only SIGKILL is sure to end a process that hangs, and at-most-once must survive it anyway.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The parent may have died before the line above; then nobody would ever signal us.
    if os.getppid() != parent:
        sys.exit(f"parent {parent} is gone")


def command_line(command: list[str], *, parent: int | None = None) -> list[str]:
    """The argv that starts `command` bound to the life of this process (or of `parent`)."""
    return [sys.executable, "-I", "-S", __file__, str(parent or os.getpid()), *command]


def main() -> None:
    """Entry: `child.py PARENT COMMAND [ARG...]`."""
    die_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606  argv comes from our own supervisor, no shell


if __name__ == "__main__":
    main()
