"""What `doctor` looks at beyond the durability verdict. A check answers with findings, it never raises."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from typing import Any

import redis
from redis.exceptions import MovedError

from ledger.cli.options import Settings
from ledger.config import Config, Durability, RedisConfig
from ledger.counts import Standing, counts_key, summed
from ledger.durability import Finding, Level
from ledger.errors import LedgerError
from ledger.tokens import TokenBook

ENTRY_POINTS = "mutation_ledger.checks"
PROBE_KEY = "ml:{doctor}:probe"
PROBES = 20
SLOW_SECONDS = 0.1
CONFIRM_MS = 2000


def config_check(settings: Settings) -> tuple[Config | None, Finding]:
    """The configuration, or None with the reason."""
    where = str(settings.config_file or "no file, defaults")
    try:
        return settings.config, Finding("config", Level.OK, f"{where}: every setting is known and fits")
    except LedgerError as error:
        return None, Finding("config", Level.BAD, str(error), "correct that setting")


def token_check(settings: Settings) -> Finding:
    """Whether anybody can call the API at all."""
    try:
        known = len(TokenBook.load(settings.config, settings.data_dir))
    except LedgerError as error:
        return Finding("tokens", Level.BAD, str(error), "see `mutation-ledger token new`")
    if known:
        return Finding("tokens", Level.OK, f"{known} known")
    return Finding("tokens", Level.WARN, "none: nobody can call the API", "add [[tokens]], or start `up` once")


def write_latency(client: redis.Redis, settings: RedisConfig) -> Finding:
    """Time PROBES confirmed writes on one connection (C-20), then delete the key again."""
    name = "confirmed write"
    times: list[float] = []
    # One connection for write and WAITAOF: on another one the wait proves nothing.
    with redis.Redis(connection_pool=client.connection_pool, single_connection_client=True) as pinned:
        try:
            for number in range(PROBES):
                begun = time.perf_counter()
                pinned.set(PROBE_KEY, f"{begun}-{number}", px=60_000)
                short = _unconfirmed(pinned, settings)
                times.append(time.perf_counter() - begun)
                if short:
                    return Finding(name, Level.BAD, short, "see the server's log and its disk")
            pinned.delete(PROBE_KEY)
        except redis.RedisError as error:
            if isinstance(error, MovedError):
                return Finding(name, Level.OK, "measured on the node that owns the probe's slot")
            return Finding(name, Level.BAD, f"a write failed: {_line(error)}", "see the server's log")
    middle, worst = statistics.median(times), max(times)
    detail = f"p50 {middle * 1000:.2f} ms, worst {worst * 1000:.2f} ms of {PROBES}"
    if middle > SLOW_SECONDS:
        return Finding(name, Level.WARN, detail, "a mutation takes at least two of these: use a faster disk")
    return Finding(name, Level.OK, detail)


def job_workers(client: redis.Redis) -> Finding | None:
    """RQ's registered workers, read from its keys; None on a cluster node that does not hold them."""
    prefix = os.environ.get("RQ_KEY_PREFIX", "{rq}")
    try:
        members: Any = client.smembers(f"{prefix}:workers")
        alive = sum(bool(client.exists(member)) for member in members)
    except redis.RedisError as error:
        if isinstance(error, MovedError):
            return None
        return Finding("rq", Level.BAD, f"its keys cannot be read: {_line(error)}", "allow this user the keys of RQ")
    if alive:
        return Finding("rq", Level.OK, f"{alive} worker{'s' if alive != 1 else ''} registered")
    return Finding("rq", Level.WARN, "no worker is registered", "start `mutation-ledger worker` (or `up`)")


def late_reports(client: redis.Redis, shards: int) -> Finding | None:
    """Attempts that reported after somebody had reconciled them (C-91); None where they cannot be read."""
    found = []
    for shard in range(shards):
        try:
            found.append(client.hgetall(counts_key(shard)))
        except MovedError:  # another node of the cluster tells of this shard
            continue
        except redis.RedisError as error:
            return Finding("late reports", Level.BAD, f"cannot be read: {_line(error)}", "allow this user the keys")
    seen = Standing(summed(found)).late_reports
    if not seen:
        return Finding("late reports", Level.OK, "none: no attempt contradicts what somebody decided")
    detail = ", ".join(f"{count} {verdict}" for verdict, count in sorted(seen.items()))
    return Finding(
        "late reports",
        Level.WARN,
        f"attempts that reported after they were reconciled: {detail}",
        "`show SESSION` of those in the workers' log lines `late_report`; one that was done twice needs a person",
    )


def extra_checks(config: Config) -> Iterator[Finding]:
    """The checks that other packages hand in: callables of the configuration giving (name, ok, detail)."""
    for point in entry_points(group=ENTRY_POINTS):
        try:
            rows: Iterable[tuple[str, bool, str]] = point.load()(config)
            for name, held, detail in rows:
                yield Finding(name, Level.OK if held else Level.BAD, detail)
        except Exception as error:
            # Another package's failing check must not hide the remaining lines.
            yield Finding(point.name, Level.BAD, f"the check itself failed: {type(error).__name__}", "report it")


def _unconfirmed(pinned: Any, settings: RedisConfig) -> str:
    """Empty if the last write is confirmed as the mode demands, else what was missing."""
    if settings.durability is not Durability.VERIFIED:
        return ""
    if settings.aof_replicas:
        # A replica that has answered this has synced, too; otherwise it says so a second later.
        pinned.execute_command("WAIT", settings.aof_replicas, CONFIRM_MS)
    local, replicas = pinned.execute_command("WAITAOF", settings.aof_local, settings.aof_replicas, CONFIRM_MS)
    if local >= settings.aof_local and replicas >= settings.aof_replicas:
        return ""
    wanted = f"{settings.aof_local} local and {settings.aof_replicas} replicas"
    return f"WAITAOF confirmed {local} local and {replicas} replicas within {CONFIRM_MS} ms, not {wanted}"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
