"""A front door and a worker, each behind a proxy that loses the replies a test names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ledger.identity import session_hash
from tests.support.checker import check, read_ledger
from tests.support.proxy import TcpProxy
from tests.support.scripted import marker, preload
from tests.support.stack import Api, Reply, Stack
from tests.support.valkey import ValkeyProcess
from tests.support.wait import wait_until

ERASER = "eraser-token-1"


@dataclass(frozen=True)
class Bench:
    """A front door and a worker, each behind a proxy of its own."""

    valkey: ValkeyProcess
    stack: Stack
    api: Api
    door: TcpProxy
    worker: TcpProxy


def lose(
    bench: Bench, proxy: TcpProxy, script: str, then: Callable[[], None] = lambda: None, *, saying: bytes = b""
) -> None:
    """The next reply to `script` that says this is lost; by then the script has run."""
    preload(bench.valkey, script)
    proxy.lose_reply(marker(script), then, saying=saying)


def answered(ask: Callable[[], Reply]) -> Reply:
    """Asks again, with the same ids, until the answer is none of 503."""
    replies: list[Reply] = []

    def once() -> bool:
        replies.append(ask())
        return replies[-1].status != 503

    wait_until(once, 15, "an answer")
    return replies[-1]


def sid(session: str) -> bytes:
    """The session as scripts answer it."""
    return session_hash("acme", session).encode()


def asleep(bench: Bench) -> None:
    """Waits until the worker has switched its claiming off: the next claim is then for the next session."""
    client = bench.valkey.client()
    wait_until(lambda: not client.keys("ml:*:awake"), 10, "claiming to go off")


def journal(bench: Bench, run_id: str) -> list[str]:
    """The types of a run's events, in order."""
    events = bench.api.get(f"/api/runs/{run_id}/events").body["events"]
    return [event["type"] for event in events]


def verify(bench: Bench, session: str, statuses: dict[str, int], *, rows: int) -> None:
    """Exactly these outcomes, exactly so many stream entries, and the invariants."""
    found = read_ledger(bench.valkey, [session])
    assert found.statuses() == statuses
    assert sum(row["session_id"] == session for row in found.stream) == rows
    everything = read_ledger(bench.valkey, {row["session_id"] for row in found.stream})
    # A session that was erased has left its effects and no entries.
    known = [effect for effect in bench.stack.effects() if not effect["id"].startswith("erase")]
    check(known, everything)


def plan(name: str, *, slow: float = 0.0) -> list[tuple[str, dict[str, Any]]]:
    """Two calls that differ from those of other plans; the first answers `slow` seconds after its effect."""
    return [("pay_slowly", {"id": f"{name}-{number}", "after": slow * (1 - number)}) for number in range(2)]
