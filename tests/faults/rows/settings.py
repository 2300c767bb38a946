"""Rows 17 and 18: somebody changes the store's settings or forgets its scripts; it is full; bodies are huge."""

from __future__ import annotations

import contextlib
import http.client
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redis.exceptions import OutOfMemoryError

from ledger.store.connections import RECHECK_SECONDS
from tests.faults.harness.tally import Tally
from tests.faults.harness.traffic import Traffic
from tests.faults.harness.world import LAG, World
from tests.support.stack import AGENT
from tests.support.wait import wait_until

BODY_BYTES = 100 * 1024 * 1024
PROMISES = {
    "appendfsync": ("no", "always"),
    "no-appendfsync-on-rewrite": ("yes", "no"),
    "maxmemory-policy": ("allkeys-lru", "noeviction"),
}


def _work(world: World, calls: int) -> None:
    wanted = world.mutations() + calls
    wait_until(lambda: world.mutations() >= wanted, 60, "calls to be made")


def change_settings(folder: Path, seed: int, promises: Mapping[str, tuple[str, str]] = PROMISES) -> Tally:
    """Row 17: a setting of the promise is changed live: noticed within 10 s, no call until it is right again."""
    noticed: dict[str, float] = {}
    with World(folder, seed) as world:
        world.start(workers=2)
        traffic = world.traffic()
        client: Any = world.valkey.client()
        for name, (bad, good) in promises.items():
            _work(world, 5)
            _backlog(traffic, name)
            client.config_set(name, bad)
            world.count("CONFIG SET")
            began = time.monotonic()
            wait_until(lambda: _door_refuses(world), RECHECK_SECONDS + 5, f"{name} {bad} to be noticed")
            noticed[name] = round(time.monotonic() - began, 1)
            # The workers look by themselves, at most 10 s after the last time.
            with world.doubt(grace=RECHECK_SECONDS + 1 - noticed[name]):
                until = time.monotonic() + RECHECK_SECONDS + 2 + LAG - noticed[name]
                wait_until(lambda until=until: time.monotonic() >= until, RECHECK_SECONDS + 5, "a time in doubt")  # type: ignore[misc]  # bound
            client.config_set(name, good)
            _work(world, 3)
        traffic.finish(120)
        world.check(ended=True)
        if max(noticed.values()) > RECHECK_SECONDS + 1:
            world.violations.append(f"I8: a setting was noticed after {max(noticed.values())} s")
        return Tally.of(world, noticed_seconds=noticed)


def _backlog(traffic: Traffic, name: str) -> None:
    """Calls for longer than anybody may take to notice: a worker that looks away would go on with them."""
    for number in range(3):
        calls = [("act", {"id": f"{name}-{number}-{call}", "after": 0.6}) for call in range(32)]
        traffic.deliver(calls, session=f"t-backlog-{name}-{number}", delivery="d")


def _door_refuses(world: World) -> bool:
    # Not /readyz, which looks at the settings each time: what traffic meets counts.
    return any(row.status == 503 for row in [world.api.trigger("probe", "probe", [("act", {"id": "probe"})])])


def flush_scripts(folder: Path, seed: int, rounds: int = 10) -> Tally:
    """Row 17: SCRIPT FLUSH and FUNCTION FLUSH live: everything is loaded again and nobody notices."""
    with World(folder, seed) as world:
        world.start(workers=2)
        traffic = world.traffic()
        client: Any = world.valkey.client()
        for _ in range(rounds):
            _work(world, 4)
            client.script_flush()
            client.function_flush()
            world.count("scripts flushed")
        traffic.finish()
        world.check(ended=True)
        if traffic.acks.refused:
            world.violations.append(f"I8: {traffic.acks.refused} answers were refused over lost scripts")
        return Tally.of(world)


def full_memory(folder: Path, seed: int, rounds: int = 2) -> Tally:
    """Row 18: `maxmemory` is reached: 503 and no intent, until there is room again."""
    with World(folder, seed) as world:
        world.valkey.client().config_set("maxmemory", "64mb")
        world.start(workers=2)
        traffic = world.traffic()
        client: Any = world.valkey.client()
        for _ in range(rounds):
            _work(world, 8)
            _fill(client)
            world.count("maxmemory reached")
            with world.doubt(grace=1.0):
                wait_until(lambda: _door_refuses(world), 10, "the front door to refuse")
                until = time.monotonic() + 2.5 + LAG
                wait_until(lambda until=until: time.monotonic() >= until, 5, "a time in doubt")  # type: ignore[misc]  # bound
            client.config_set("maxmemory", "64mb")
            client.delete("filler")
            _work(world, 3)
        world.violations += _huge_bodies(world)
        traffic.finish()
        world.check(ended=True)
        return Tally.of(world)


def _fill(client: Any) -> None:
    """Writes until the server takes no more; then a little less is allowed, because buffers come and go."""
    for size in (1_048_576, 65_536):
        with contextlib.suppress(OutOfMemoryError):
            while True:
                client.append("filler", b"x" * size)
    client.config_set("maxmemory", "60mb")


def _huge_bodies(world: World) -> list[str]:
    """100 MB are refused with 413, stated or in chunks, without being read into memory."""
    found = []
    for chunked in (False, True):
        status = _post_huge(world.api.port, chunked=chunked)
        world.count("huge body")
        if status not in (413, 0):
            found.append(f"I8: a body of 100 MB is answered {status}")
    if world.api.get("/readyz").status != 200:
        found.append("I8: the front door is not ready after huge bodies")
    return found


def _post_huge(port: int, *, chunked: bool) -> int:
    """The answer's status; 0 if the server closed the connection before everything was sent."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {AGENT}", "Content-Type": "application/json"}
    block = b"[" + b" " * 65_535
    pieces = (block for _ in range(BODY_BYTES // len(block)))
    if not chunked:
        headers["Content-Length"] = str(BODY_BYTES)
    try:
        connection.request("POST", "/api/trigger", pieces, headers, encode_chunked=chunked)
        return connection.getresponse().status
    except (BrokenPipeError, ConnectionResetError):
        return 0
    finally:
        connection.close()
