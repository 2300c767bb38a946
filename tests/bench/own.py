"""Our own stack under measurement: configuration, processes, deliveries, and what is read off the store."""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ledger.admission import AdmissionLimits, Delivery, ProposedCall
from ledger.config import RedisConfig, load
from ledger.plugins import load_plugins
from ledger.policy import Policy
from ledger.store import AsyncStore, StoreSettings
from ledger.strict_json import check_arguments
from tests.bench.drivers import ROOT
from tests.bench.plugin import TOOL
from tests.bench.server import BenchStore
from tests.support.stack import Stack

TENANT, AGENT, USER = "acme", "ops", "dana"
DAY_MS = 86_400_000
CONFIG = """
[plugins]
modules = ["tests.bench.plugin"]
[[policy.auto_approve]]
name = "bench"
tool = "noop"
[workers]
linger_seconds = 3600
[service]
max_streams = 2000
"""
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}


def own_stack(directory: Path, store: BenchStore) -> Stack:
    """Front doors and workers on a store, with the no-op tool."""
    return Stack(directory, store.url, CONFIG, env=ENVIRONMENT)


def policy_of(config_file: Path) -> Policy:
    """The policy that the processes of a stack have."""
    return load_plugins(load(config_file)).policy


def limits(policy: Policy) -> AdmissionLimits:
    """The defaults of the front door."""
    return AdmissionLimits(
        ceiling_ms=900_000,
        session_ms=880_000,
        approval_ms=300_000,
        journal_ms=DAY_MS,
        inactivity_ms=30 * DAY_MS,
        max_live_runs=100,
        max_pending_approvals=100,
        policy_digest=policy.digest,
        tombstone_key=hashlib.sha256(b"bench").digest(),
    )


def delivery(session: str, number: int, calls: int = 1) -> Delivery:
    """One delivery of distinct no-op calls, as the front door would make it."""
    arguments = [{"n": number * 64 + i, "note": "a few words for the tool"} for i in range(calls)]
    proposed = [ProposedCall(TOOL, check_arguments(one), True, "approve", "bench") for one in arguments]
    content: dict[str, Any] = {"calls": [[TOOL, one] for one in arguments], "on_error": "stop"}
    return Delivery(TENANT, session, AGENT, USER, "agent", f"d{number}", proposed, content)


class Sessions:
    """Names of sessions, used in turn. A slice gets fresh ones, so that no slice pays for the turns of another."""

    def __init__(self, count: int, prefix: str = "s") -> None:
        self._prefix = f"{prefix}{os.getpid()}"
        self._count = count
        self._numbers = itertools.count()

    def names(self, per_session: int) -> Iterator[str]:
        """Each of `count` new names `per_session` times, round robin."""
        while True:
            batch = next(self._numbers)
            for _ in range(per_session):
                for n in range(self._count):
                    yield f"{self._prefix}-{batch}-{n}"


async def opened(url: str, **options: Any) -> AsyncStore:
    """A store client of this process."""
    store = AsyncStore(StoreSettings(RedisConfig(url=url), client_name="bench"), **options)
    await store.open()
    return store


def python(*arguments: str) -> list[str]:
    """A command run by this interpreter."""
    return [sys.executable, *arguments]
