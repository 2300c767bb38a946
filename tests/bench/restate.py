"""A Restate server (npm's package) with the Python service registered, on loopback."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ledger.supervise.child import command_line
from tests.bench.drivers import DriverFailed
from tests.support.valkey import free_port

START_SECONDS = 60.0
SERVICE = Path(__file__).with_name("peers") / "restate_service.py"


class Restate:
    """Server and service. `partitions` None: the server's own default."""

    def __init__(self, directory: Path, *, server: Path, python: Path, partitions: int | None = None) -> None:
        self._directory = directory
        self._server = server
        self._python = python
        self._partitions = partitions
        self.port, self._admin, self._service, self._node = (free_port() for _ in range(4))
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "RESTATE_BASE_DIR": str(self._directory / "data"),
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_BIND_IP": "127.0.0.1",
            "RESTATE_BIND_PORT": str(self._node),
            "RESTATE_ADVERTISED_HOST": "127.0.0.1",
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{self.port}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{self._admin}",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_LOG_FILTER": "warn",
        }
        if self._partitions is not None:
            settings["RESTATE_DEFAULT_NUM_PARTITIONS"] = str(self._partitions)
        self._run("server", [str(self._server), "--no-logo", "--node-name", "bench"], settings)
        self._run("service", [str(self._python), str(SERVICE), str(self._service)], {})
        self._register()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _run(self, name: str, command: list[str], env: dict[str, str]) -> None:
        with (self._directory.parent / f"restate-{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command_line(command), env={**os.environ, **env}, stdout=log, stderr=log, cwd=self._directory
            )
        self._stack.callback(_stop, process)

    def _register(self) -> None:
        end = time.monotonic() + START_SECONDS
        asked = json.dumps({"uri": f"http://127.0.0.1:{self._service}"})
        while (status := self._post("/deployments", asked)) not in (200, 201):
            if time.monotonic() > end:
                raise DriverFailed(f"Restate did not take the service within {START_SECONDS:g} s ({status})")
            time.sleep(0.3)

    def _post(self, path: str, body: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self._admin, timeout=10)
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer: Any = connection.getresponse()
            answer.read()
        except OSError:
            return 0
        else:
            return int(answer.status)
        finally:
            connection.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
