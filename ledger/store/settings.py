"""How to reach the store, and what its confirmations must show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry

from ledger.config import Durability, RedisConfig
from ledger.durability import Report, Verdict
from ledger.errors import ConfigError
from ledger.store.placement import Node, StoreAddress, parse_address


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where the store is and when a write counts as confirmed.

    `wait_seconds` bounds one confirmation; sockets wait a little longer, so that the store's own answer comes first.
    """

    redis: RedisConfig
    wait_seconds: float = 5.0
    connect_seconds: float = 2.0
    client_name: str = "mutation-ledger"

    @property
    def url(self) -> str:
        """The store's address.

        Raises:
            ConfigError: none is configured and no embedded store was started.
        """
        if not self.redis.url:
            raise ConfigError("no store: set redis.url, pass --redis-url, or start one with `mutation-ledger up`")
        return self.redis.url

    @property
    def address(self) -> StoreAddress:
        """The URL taken apart.

        Raises:
            ConfigError: it cannot be parsed.
        """
        try:
            return parse_address(self.url)
        except ValueError as error:
            raise ConfigError(f"redis.url is not usable: {error}") from None

    def connection_kwargs(self, node: Node | None = None, *, bare: bool = False) -> dict[str, Any]:
        """Arguments for a redis-py connection class: no retries, no hidden re-sending (C-22).

        `node` is another server than the URL's, `bare` leaves out login and database, which a Sentinel does not know.

        Raises:
            ConfigError: the URL cannot be parsed.
        """
        try:
            kwargs: dict[str, Any] = dict(parse_url(self.address.base))  # type: ignore[no-untyped-call]  # in redis-py
        except ValueError as error:
            raise ConfigError(f"redis.url is not usable: {error}") from None
        kwargs.pop("connection_class", None)
        if node is not None:
            kwargs.update(host=node[0], port=node[1])
        if bare:
            kwargs = {name: value for name, value in kwargs.items() if name not in ("username", "password", "db")}
        kwargs.update(
            socket_timeout=self.answer_seconds,
            socket_connect_timeout=self.connect_seconds,
            retry=Retry(NoBackoff(), 0),
            retry_on_timeout=False,
            health_check_interval=0,
            client_name=self.client_name,
        )
        return kwargs

    def connection_class(self, module: Any) -> Any:
        """What `connection_kwargs` are for: of `redis.connection` or of `redis.asyncio.connection`."""
        if self.address.base.startswith("unix:"):
            return module.UnixDomainSocketConnection
        return module.SSLConnection if self.address.base.startswith("rediss:") else module.Connection

    @property
    def answer_seconds(self) -> float:
        """How long an answer is waited for: longer than the store itself waits, so that its word comes first."""
        return self.wait_seconds + 2.0

    def waits_aof(self, report: Report | None) -> bool:
        """Whether a WAITAOF follows every write to a server of this report; only `verified` needs one (C-21).

        `allow_ephemeral` lets a server pass that cannot promise, and waits for nothing there: it may not even know the
        command. One that was found able to promise is waited for all the same, because `verified` is what is shown.
        """
        if self.redis.durability is not Durability.VERIFIED:
            return False
        return not self.redis.allow_ephemeral or (report is not None and report.verdict is Verdict.VERIFIED)

    def confirms_reads(self, report: Report | None) -> bool:
        """Whether what was only read there is told when the replicas hold it, too (C-25)."""
        return self.redis.aof_replicas > 0 and self.waits_aof(report)

    def aof_commands(self) -> list[list[str | int]]:
        """What follows every write on its own connection (C-20); the last one, a WAITAOF, answers what was confirmed.

        A replica answers a WAITAOF alone with what it had synced before the write came, and again a second later; when
        it has answered a WAIT it has synced. Together they take no longer than `wait_seconds`.
        """
        local, replicas = self.redis.aof_local, self.redis.aof_replicas
        milliseconds = max(2, int(self.wait_seconds * 1000))
        if not replicas:
            return [["WAITAOF", local, replicas, milliseconds]]
        half = milliseconds // 2
        return [["WAIT", replicas, half], ["WAITAOF", local, replicas, half]]
