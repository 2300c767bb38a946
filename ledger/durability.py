"""Whether a store can keep the durability promise (C-20, C-21): its replies in, findings out.

`COMMANDS` are what to ask, `facts_from` reads the replies, `judge` decides; these three are pure, so the sync
tools and the async store share them. `verify` does all of it over a sync client.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ledger.config import Durability, RedisConfig
from ledger.errors import StoreError, StoreUnavailable, StoreUnsafe

SETTINGS = (
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "maxmemory-policy",
    "aof-use-rdb-preamble",
    "auto-aof-rewrite-min-size",
)
# One name a CONFIG GET and INFO without sections: older servers take no more. The WAITAOF waits for nothing;
# it only shows whether the server knows the command.
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("INFO",),
    ("WAITAOF", "0", "0", "1"),
    *(("CONFIG", "GET", name) for name in SETTINGS),
)
REWRITE_MIN_BYTES = 1 << 30
# These end by themselves (C-26): the caller is told to come back, not to change a setting.
_PASSING = frozenset({"loading", "aof_replicas", "aof_last_write_status"})


class Level(StrEnum):
    """How one finding counts."""

    OK = "ok"  # as it must be
    WARN = "warn"  # the promise holds, something is worth a look
    BAD = "bad"  # the promise cannot be kept


class Verdict(StrEnum):
    """What `/readyz` and `doctor` show (C-21)."""

    VERIFIED = "verified"  # every checkpoint is confirmed on disk, settings checked
    ATTESTED = "attested"  # the operator vouches for the service
    UNSAFE = "unsafe"  # the store can lose what it acknowledged


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: the setting's name, how it counts, what was seen, and how to put it right."""

    name: str
    verdict: Level
    detail: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What a server said of itself. `config` None: CONFIG is forbidden. `waitaof` None: it would not say."""

    info: Mapping[str, str]
    config: Mapping[str, str] | None
    waitaof: bool | None

    @property
    def run_id(self) -> str:
        """The server's life: another value means that it was restarted or replaced."""
        return self.info.get("run_id", "")


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict on a store and the findings it rests on."""

    verdict: Verdict
    findings: tuple[Finding, ...] = field(default_factory=tuple)

    @property
    def bad(self) -> tuple[Finding, ...]:
        """The findings that break the promise."""
        return tuple(finding for finding in self.findings if finding.verdict is Level.BAD)

    def error(self) -> StoreError | None:
        """One line naming the worst setting and its fix: StoreUnsafe, or StoreUnavailable if it may pass."""
        if not self.bad:
            return None
        lasting = [finding for finding in self.bad if finding.name not in _PASSING]
        worst = (lasting or self.bad)[0]
        more = f" (and {len(self.bad) - 1} more, see `mutation-ledger doctor`)" if len(self.bad) > 1 else ""
        line = f"the store cannot keep the durability promise: {worst.detail}; fix: {worst.fix}{more}"
        return StoreUnsafe(line) if lasting else StoreUnavailable(line, sent=False)


def facts_from(replies: Sequence[object]) -> StoreFacts:
    """The replies to `COMMANDS`, in order, as facts; an exception in place of a reply means "refused".

    Takes what redis-py parsed (dicts) as well as raw replies (bytes, flat lists).
    """
    info, waitaof, *settings = replies
    forbidden = any(isinstance(reply, Exception) for reply in settings)
    config = None if forbidden else {name: value for reply in settings for name, value in _pairs(reply).items()}
    return StoreFacts(_info(info), config, _has_command(waitaof))


def judge(facts: StoreFacts, settings: RedisConfig) -> Report:
    """All findings for the configured durability mode (C-20, C-21, C-27), and the verdict. Pure."""
    external = settings.durability is Durability.EXTERNAL
    findings = [_role(facts), _loading(facts), _version(facts, settings)]
    findings += [_attested()] if external else _persistence(facts)
    findings += [_eviction(facts, external), *_replicas(facts, settings)]
    kept = tuple(finding for finding in findings if finding is not None)
    if any(finding.verdict is Level.BAD for finding in kept):
        return Report(Verdict.UNSAFE, kept)
    return Report(Verdict.ATTESTED if external else Verdict.VERIFIED, kept)


def require(facts: StoreFacts, settings: RedisConfig) -> Report:
    """`judge`, raising StoreUnsafe or StoreUnavailable with one line unless `allow_ephemeral` is set."""
    report = judge(facts, settings)
    error = report.error()
    if error is not None and not settings.allow_ephemeral:
        raise error
    return report


def worst(reports: Iterable[Report | None]) -> Report | None:
    """Of several servers' reports the one that promises least; None if there is none."""
    order = list(Verdict)
    return max((report for report in reports if report), key=lambda report: order.index(report.verdict), default=None)


def plain_client(url: str, *, timeout: float = 5.0) -> redis.Redis:
    """A client that never re-sends by itself and waits at most `timeout` seconds for anything (C-22)."""
    client: redis.Redis = redis.Redis.from_url(
        url, retry=Retry(NoBackoff(), 0), socket_timeout=timeout, socket_connect_timeout=timeout
    )
    return client


def read_facts(client: redis.Redis) -> StoreFacts:
    """Ask one server. Raises StoreUnavailable if it cannot be reached or will not answer INFO."""
    try:
        pipe: Any
        with client.pipeline(transaction=False) as pipe:
            for command in COMMANDS:
                pipe.execute_command(*command)
            replies = pipe.execute(raise_on_error=False)
    except redis.BusyLoadingError:
        raise StoreUnavailable("the store is loading its data; wait until it has loaded", sent=False) from None
    except redis.RedisError as error:
        raise StoreUnavailable(f"the store cannot be reached: {_reason(error)}", sent=False) from None
    if isinstance(replies[0], Exception):
        raise StoreUnavailable(f"the store refused INFO: {_reason(replies[0])}", sent=False)
    return facts_from(replies)


def verify(client: redis.Redis, settings: RedisConfig) -> Report:
    """Read and require in one step. Raises StoreUnavailable or StoreUnsafe (C-21)."""
    return require(read_facts(client), settings)


def _role(facts: StoreFacts) -> Finding:
    role = facts.info.get("role", "unknown")
    if role in ("master", "primary"):
        return Finding("role", Level.OK, "role is master")
    return Finding("role", Level.BAD, f"role is {role}", "point redis.url at the primary (or at Sentinel)")


def _loading(facts: StoreFacts) -> Finding | None:
    if facts.info.get("loading", "0") == "0":
        return None
    return Finding("loading", Level.BAD, "the server is loading its data", "wait until it has loaded")


def _version(facts: StoreFacts, settings: RedisConfig) -> Finding:
    name, able = _server(facts)
    if able or settings.durability is not Durability.VERIFIED:
        suffix = "with WAITAOF" if able else "without WAITAOF (not needed in this mode)"
        return Finding("version", Level.OK, f"{name} {suffix}")
    fix = "use Redis 7.2 or later, or Valkey"
    if settings.aof_replicas == 0:
        always = (facts.config or {}).get("appendfsync") == "always"
        fix += ', or set redis.durability = "always"' + ("" if always else " with appendfsync always")
    return Finding("version", Level.BAD, f"{name} has no WAITAOF", fix)


def _server(facts: StoreFacts) -> tuple[str, bool]:
    """The server's name with version, and whether it has WAITAOF."""
    valkey = facts.info.get("valkey_version")
    version = valkey or facts.info.get("redis_version", "?")
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    able = facts.waitaof if facts.waitaof is not None else bool(valkey) or numbers >= (7, 2)
    return f"{'Valkey' if valkey else 'Redis'} {version}", able


def _attested() -> Finding:
    return Finding("durability", Level.OK, 'durability = "external": the operator attests that writes are durable')


def _persistence(facts: StoreFacts) -> list[Finding | None]:
    if facts.config is None:
        fix = 'allow CONFIG GET to this user, or attest a durable service with redis.durability = "external"'
        return [Finding("config", Level.BAD, "CONFIG GET is forbidden, so nothing can be checked", fix)]
    return [
        _setting(facts.config, "appendonly", "yes"),
        _setting(facts.config, "appendfsync", "always"),
        _setting(facts.config, "no-appendfsync-on-rewrite", "no"),
        _write_status(facts),
        _preamble(facts.config),
        _rewrite_size(facts.config),
    ]


def _setting(config: Mapping[str, str], name: str, wanted: str) -> Finding:
    value = config.get(name, "unknown")
    if value == wanted:
        return Finding(name, Level.OK, f"{name} is {value}")
    return Finding(name, Level.BAD, f"{name} is {value}, not {wanted}", _set(name, wanted))


def _set(name: str, wanted: str) -> str:
    return f"`{name} {wanted}` in the server's configuration (now: CONFIG SET {name} {wanted})"


def _write_status(facts: StoreFacts) -> Finding:
    name = "aof_last_write_status"
    status = facts.info.get(name, "ok")
    if status == "ok":
        return Finding(name, Level.OK, "the last AOF write was ok")
    fix = "make room or replace the disk under the AOF directory; see the server's log"
    return Finding(name, Level.BAD, f"the last AOF write failed ({status})", fix)


def _preamble(config: Mapping[str, str]) -> Finding:
    name = "aof-use-rdb-preamble"
    if config.get(name, "no") == "no":
        return Finding(name, Level.OK, f"{name} is no")
    # C-84: a rewrite with the preamble keeps the bytes of deleted stream entries.
    return Finding(name, Level.WARN, f"{name} is yes: erased content can outlive a rewrite", _set(name, "no"))


def _rewrite_size(config: Mapping[str, str]) -> Finding | None:
    name = "auto-aof-rewrite-min-size"
    value = config.get(name, "")
    if not value.isdigit() or int(value) >= REWRITE_MIN_BYTES:
        return None
    detail = f"{name} is {int(value) >> 20} MB: rewrites come every few seconds under load"
    return Finding(name, Level.WARN, detail, _set(name, "1gb"))


def _eviction(facts: StoreFacts, external: bool) -> Finding:
    name = "maxmemory-policy"
    value = (facts.config or {}).get(name) or facts.info.get("maxmemory_policy")
    if value == "noeviction":
        return Finding(name, Level.OK, f"{name} is noeviction")
    if value is None:
        level = Level.WARN if external else Level.BAD
        return Finding(name, level, f"{name} cannot be read", "make sure that it is noeviction")
    detail = f"{name} is {value}: a full server would drop ledger entries"
    return Finding(name, Level.BAD, detail, _set(name, "noeviction"))


def _replicas(facts: StoreFacts, settings: RedisConfig) -> list[Finding | None]:
    text = facts.info.get("connected_slaves", facts.info.get("connected_replicas", "0"))
    connected = int(text) if text.isdigit() else 0
    name, wanted = "aof_replicas", settings.aof_replicas
    seen = f"aof_replicas = {wanted}, {connected} connected"
    if connected < wanted:
        return [Finding(name, Level.BAD, seen, "bring the replicas back, or lower redis.aof_replicas")]
    if connected > wanted and settings.durability is Durability.VERIFIED:
        # C-27: a promoted replica that confirmed nothing may lack confirmed writes.
        fix = f"set redis.aof_replicas = {connected} if any of them can be promoted"
        return [Finding(name, Level.WARN, f"{seen}: automatic failover is not supported so", fix)]
    return [Finding(name, Level.OK, seen)]


def _info(reply: object) -> dict[str, str]:
    if isinstance(reply, Mapping):
        return {str(key): str(value) for key, value in reply.items()}
    pairs = (line.split(":", 1) for line in _text(reply).splitlines() if ":" in line and line[0] != "#")
    return {key: value.strip() for key, value in pairs}


def _pairs(reply: object) -> dict[str, str]:
    if isinstance(reply, Mapping):
        return {_text(key): _text(value) for key, value in reply.items()}
    flat = [_text(item) for item in reply] if isinstance(reply, Sequence) else []
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _has_command(reply: object) -> bool | None:
    if not isinstance(reply, Exception):
        return True
    text = str(reply).lower()
    if "unknown command" in text:
        return False
    # Replicas know the command and refuse it; a user without the right learns nothing.
    return True if "replica" in text else None


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _reason(error: Exception) -> str:
    """One line without what was sent; redis-py's texts hold host and port at most."""
    return " ".join(str(error).split())[:200] or type(error).__name__
