"""Stand-ins for `serve` and `worker`, so that `up` can be tested by itself.

They write what happens to them, one line each, to the file named by FAKE_LOG. `install` makes them win over
the real commands in child processes.
"""

from __future__ import annotations

import http.server
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import click

from ledger.cli.options import Settings, common
from ledger.durability import plain_client

ENTRY_POINTS = """[mutation_ledger.commands]
serve = tests.support.fake_services:serve
worker = tests.support.fake_services:worker
"""


def install(folder: Path, log: Path, **more: str) -> dict[str, str]:
    """The environment in which `mutation-ledger` finds these commands first."""
    dist = folder / "fake_services-1.0.dist-info"
    dist.mkdir(parents=True)
    (dist / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-services\nVersion: 1.0\n")
    (dist / "entry_points.txt").write_text(ENTRY_POINTS)
    root = Path(__file__).parents[2]
    return {**os.environ, "PYTHONPATH": f"{folder}:{root}", "FAKE_LOG": str(log), **more}


def note(line: str) -> None:
    """One line in the log, in one write, so that processes do not mix."""
    with Path(os.environ["FAKE_LOG"]).open("a") as log:
        log.write(f"{line}\n")


@click.command()
@common
def serve(settings: Settings) -> None:
    """Answers 200 to everything."""
    server = http.server.HTTPServer(("127.0.0.1", settings.config.service.port), _Answer)
    signal.signal(signal.SIGTERM, _leave("serve"))
    note(f"serve start {os.getpid()}")
    server.serve_forever()


@click.command()
@click.option("--processes", type=int)
@common
def worker(settings: Settings, processes: int) -> None:
    """Writes to the store when it is asked to stop, which shows that the store is still there."""
    url = settings.store_url()

    def stop(number: int, frame: FrameType | None) -> None:
        with plain_client(url) as client:
            client.incr("stopped")
        _leave("worker")(number, frame)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if "FAKE_STUBBORN" in os.environ else stop)
    with plain_client(url) as client:
        client.incr("started")
    note(f"worker start {os.getpid()}")
    while True:
        signal.pause()


class _Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing: standard error is for the test."""


def _leave(name: str) -> Any:
    def handler(number: int, frame: FrameType | None) -> None:
        note(f"{name} stop {os.getpid()}")
        sys.exit(0)

    return handler
