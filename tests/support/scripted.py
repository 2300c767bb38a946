"""Recognising the ledger's scripts on the wire, and making them known to a server before a test begins."""

from __future__ import annotations

import contextlib
from typing import Any

from redis.exceptions import ResponseError

from ledger.store.scripts import SCRIPTS
from tests.support.valkey import ValkeyProcess


def marker(script: str) -> bytes:
    """What a request that runs this script holds, and one that loads it does not."""
    verb, name = SCRIPTS[script].command
    return f"{verb}\r\n${len(name)}\r\n{name}".encode()


def preload(valkey: ValkeyProcess, script: str) -> None:
    """The next request runs the script, and is not answered that it is unknown."""
    client: Any = valkey.client()
    with contextlib.suppress(ResponseError):  # known already
        client.execute_command(*SCRIPTS[script].loading)
