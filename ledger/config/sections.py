"""The plain sections of the configuration file. Times are in the unit their name ends with."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from ledger.config.values import Count, Flag, Name, Positive, Section, ToolName

SCHEMES = (
    "redis",
    "rediss",
    "unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
)


class Durability(StrEnum):
    """How a checkpoint is known to be on disk (C-21)."""

    VERIFIED = "verified"  # WAITAOF confirms every checkpoint
    ALWAYS = "always"  # a store without WAITAOF: its reply comes after the fsync
    EXTERNAL = "external"  # the operator attests that the service is durable by itself


class Role(StrEnum):
    """What a token may do."""

    TRIGGER = "trigger"  # hand in deliveries, read and cancel runs
    READ = "read"  # outcomes and event snapshots
    HOST = "host"  # mutation state, metadata
    APPROVE = "approve"  # read and decide approvals
    ERASE = "erase"  # erase sessions
    OPS = "ops"  # metrics


class RedisConfig(Section):
    """`[redis]`: the store and what it must promise. `url` None means the embedded store."""

    url: str | None = None
    durability: Durability = Durability.VERIFIED
    aof_local: Annotated[int, Field(ge=0, le=1, strict=True)] = 1
    aof_replicas: Annotated[int, Field(ge=0, strict=True)] = 0
    shards: Annotated[int, Field(ge=1, le=256, strict=True)] = 16
    allow_ephemeral: Flag = False

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: str | None) -> str | None:
        if url is None or url.startswith("env:"):
            return url
        if urlsplit(url).scheme not in SCHEMES:
            raise ValueError(f"must begin with one of {', '.join(f'{s}://' for s in SCHEMES)}")
        return url

    @model_validator(mode="after")
    def _some_copy_on_disk(self) -> Self:
        if self.durability is Durability.VERIFIED and self.aof_local + self.aof_replicas == 0:
            raise ValueError("aof_local = 0 needs aof_replicas >= 1, or nothing is ever confirmed on disk")
        if self.durability is Durability.ALWAYS and self.aof_replicas:
            raise ValueError('aof_replicas needs durability = "verified": only WAITAOF can confirm replicas')
        return self


class ServiceConfig(Section):
    """`[service]`: the front door and its limits (C-71)."""

    port: Annotated[int, Field(ge=1, le=65535, strict=True)] = 8321
    max_body_bytes: Count = 1_048_576
    max_argument_bytes: Count = 262_144
    max_streams: Count = 1000
    max_queued_runs: Count = 100
    max_pending_approvals: Count = 100
    rate_limit_per_second: Positive | None = None


class WorkersConfig(Section):
    """`[workers]`: what one worker process takes on."""

    concurrency: Count = 256
    linger_seconds: Positive = 60
    max_parked: Count = 5000
    max_sync_handlers: Count = 64


class TokenConfig(Section):
    """One `[[tokens]]` entry. `agents` None means any; the token itself is never stored."""

    name: Name
    sha256: Annotated[str, Field(pattern=r"\A[0-9a-f]{64}\z")]
    tenant: Name = "default"
    roles: Annotated[list[Role], Field(min_length=1)]
    agents: Annotated[list[Name], Field(min_length=1)] | None = None
    act_for_users: Flag = False


class BudgetConfig(Section):
    """`[budget]`: the execution allowance that a fresh human approval grants (C-52)."""

    tools: Annotated[list[ToolName], Field(min_length=1)]
    execution_seconds: Positive
    request_ceiling_seconds: Positive


class TimingConfig(Section):
    """`[timing]`: waits, leases and ceilings, all in seconds."""

    checkpoint_wait_seconds: Positive = 5
    settlement_wait_seconds: Positive = 5
    lease_seconds: Positive = 30
    wrap_up_seconds: Positive = 20
    cancel_drain_seconds: Positive = 5
    stop_drain_seconds: Positive = 60
    tool_timeout_seconds: Positive = 60
    request_ceiling_seconds: Positive = 900
    session_seconds: Positive = 880

    @model_validator(mode="before")
    @classmethod
    def _session_follows_ceiling(cls, data: Any) -> Any:
        # A file that only lowers the ceiling must not be refused for a session clock it never mentioned.
        if not isinstance(data, dict) or "session_seconds" in data:
            return data
        ceiling, wrap_up = data.get("request_ceiling_seconds", 900), data.get("wrap_up_seconds", 20)
        numbers = all(isinstance(n, int | float) and not isinstance(n, bool) for n in (ceiling, wrap_up))
        if numbers and ceiling > wrap_up:
            return {**data, "session_seconds": ceiling - wrap_up}
        return data

    @model_validator(mode="after")
    def _clocks_fit(self) -> Self:
        if self.wrap_up_seconds >= self.request_ceiling_seconds:
            raise ValueError("request_ceiling_seconds must exceed wrap_up_seconds")
        if self.session_seconds >= self.request_ceiling_seconds:
            raise ValueError("session_seconds must be below request_ceiling_seconds")
        return self


class RetentionConfig(Section):
    """`[retention]`: how long things are kept (C-80 to C-84)."""

    session_inactivity_days: Positive = 30
    journal_hours: Positive = 24
    tombstone_days: Positive = 30
    tombstone_key: str | None = None
    erase_rewrite_minutes: Positive = 15
    outcome_stream_maxlen: Count = 100_000


class ReadbacksConfig(Section):
    """`[readbacks]`: how registered readbacks are asked about unknown outcomes (C-91)."""

    timeout_seconds: Positive = 30
    max_tries: Count = 8
    first_pause_seconds: Positive = 30
    longest_pause_seconds: Positive = 3600


class PluginsConfig(Section):
    """`[plugins]`: Python modules, each of which may export `bind(engine)`."""

    modules: list[Annotated[str, Field(pattern=r"\A[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\z")]] = Field(default_factory=list)
