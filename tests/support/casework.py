"""What the case tests share: a stack with counted tools, and "nothing was stored" for the whole store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import redis

from tests.support import snapshot
from tests.support.service import Bench
from tests.support.stack import Api, Stack
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

ERASER = "eraser-token-1"
_CONFIG = f"""
[plugins]
modules = ["tests.support.case_tools"]

[timing]
lease_seconds = 3.0
cancel_drain_seconds = 1.0

[[tokens]]
name = "carol"
tenant = "acme"
roles = ["erase"]
sha256 = "{hashlib.sha256(ERASER.encode()).hexdigest()}"
"""


class CaseStack:
    """A front door and a worker as processes; `api` is the host's view, `client` looks into the store."""

    def __init__(self, directory: Path, server: ValkeyProcess) -> None:
        self.stack = Stack(directory, server.url, _CONFIG)
        self.server = server
        self.client: Any = server.client()
        self.api: Api = self.stack.add_front_door()
        self.stack.add_worker()

    def effects(self, **wanted: Any) -> list[dict[str, Any]]:
        """The tools' own record, oldest first, of calls whose arguments hold all of `wanted`."""
        return [line for line in self.stack.effects() if wanted.items() <= line["arguments"].items()]

    def entered(self, **wanted: Any) -> None:
        """Waits until a tool was entered with such arguments."""
        wait_until(lambda: self.effects(**wanted), 15, f"a tool to be entered with {wanted}")

    def open_gate(self, name: str) -> None:
        """Lets a held call answer."""
        (self.stack.directory / f"gate-{name}").touch()

    def where(self, text: str) -> list[str]:
        """Keys of the store in which `text` can be read."""
        return snapshot.holders(snapshot.take(self.client), text)

    def stop(self) -> None:
        """Ends the processes."""
        self.client.close()
        self.stack.stop()


@contextmanager
def follow(api: Api, run_id: str, *, after: int = 0, accept: str = "text/event-stream") -> Iterator[HTTPResponse]:
    """A run's journal as an open stream; lines arrive as they are sent."""
    connection = HTTPConnection("127.0.0.1", api.port, timeout=75)
    headers = {"Authorization": f"Bearer {api.token}", "Accept": accept}
    try:
        connection.request("GET", f"/api/runs/{run_id}/events?follow=1&after={after}", headers=headers)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        yield response
    finally:
        connection.close()


@contextmanager
def untouched(bench: Bench) -> Iterator[None]:
    """Fails if any key of the store differs after the block, counters included."""
    bench.door.store.open()
    with redis.Redis.from_url(bench.door.store.settings.url) as client:
        before = snapshot.take(client)
        yield
        assert snapshot.take(client) == before


@contextmanager
def unchanged(bench: Bench) -> Iterator[None]:
    """Fails if any key of the store differs after the block; a repeat may raise the counters (C-22)."""
    with redis.Redis.from_url(bench.door.store.settings.url) as client:
        before = snapshot.take(client)
        yield
        assert snapshot.differences(before, snapshot.take(client)) == {}
