"""A stdio server as a process: pipes whose every byte we see, and an end that nobody has to wait for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

LAUNCHER = Path(__file__).with_name("launcher.py")
# The launcher ends a stubborn server within about four seconds; after this it is killed itself.
STOP_SECONDS = 8.0


class ServerProcess:
    """One running server: `lines` is its output, `write` its input. Made by `spawn`, ended by `stop`."""

    def __init__(self, process: asyncio.subprocess.Process, stdin: int) -> None:
        self._process = process
        self._stdin = stdin
        self._full: asyncio.Future[None] | None = None
        os.set_blocking(stdin, False)

    @classmethod
    async def spawn(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None,
        stdout: int,
        stderr: int,
    ) -> ServerProcess:
        """Start `command` under the launcher, in a session of its own, writing to these descriptors.

        Raises OSError if nothing was started.
        """
        stdin, ours = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), *command),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(stdin)
        return cls(process, ours)

    @property
    def pid(self) -> int:
        """Of the launcher; the server is its child."""
        return self._process.pid

    def write(self, data: memoryview) -> int:
        """How many bytes the pipe took at once; 0 when it is full. Raises OSError if it is closed."""
        try:
            return os.write(self._stdin, data)
        except BlockingIOError:
            return 0

    async def writable(self) -> None:
        """Wait until a full pipe takes bytes again, or is closed."""
        loop = asyncio.get_running_loop()
        self._full = loop.create_future()
        loop.add_writer(self._stdin, self._wake)
        try:
            await self._full
        finally:
            if self._stdin >= 0:
                loop.remove_writer(self._stdin)

    def _wake(self) -> None:
        if self._full is not None and not self._full.done():
            self._full.set_result(None)

    def close_stdin(self) -> None:
        """Tell the server that no more requests come; harmless when repeated."""
        if self._stdin < 0:
            return
        asyncio.get_running_loop().remove_writer(self._stdin)
        os.close(self._stdin)
        self._stdin = -1
        self._wake()

    async def stop(self) -> None:
        """End of input, then let the launcher put the whole tree down; returns when it has ended."""
        self.close_stdin()
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
