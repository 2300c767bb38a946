"""Outcomes that were read are confirmed before they are handed on: the replicas may not hold them yet (C-25)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ledger.consumer.plan import checked
from ledger.consumer.steps import Address, Command, Exchange, Steps
from ledger.store.confirming import confirm_shard, not_confirmed
from ledger.store.settings import StoreSettings
from ledger.store.view import LedgerView
from ledger.store.wire import check_aof, is_missing_script


@dataclass(frozen=True, slots=True)
class Confirm:
    """What to send, and the numbers that its last answer must show."""

    commands: Sequence[Command]
    local: int
    replicas: int

    @classmethod
    def of(cls, settings: StoreSettings) -> Confirm | None:
        """None where a read needs no confirmation. A consumer looks at no server's settings, so it has no report."""
        if not settings.confirms_reads(None):
            return None
        return cls(settings.aof_commands(), settings.redis.aof_local, settings.redis.aof_replicas)


def confirm_read(confirm: Confirm, node: Address | None, shard: int, store_id: str) -> Steps[None]:
    """Goes on when everything read from `node` before is confirmed. `shard` lives there and was written to.

    On the connection of the read, so that it is the same server's word. Raises StoreUnavailable if it is not
    confirmed in time: what was read is read again next time.
    """
    call = confirm_shard(shard)
    view = LedgerView(shard + 1)
    view.adopt(shard, store_id.encode())
    commands: list[Command] = [view.arguments(call), *confirm.commands]
    replies = yield Exchange(node, commands)
    if is_missing_script(replies[0]):
        checked((yield Exchange(node, [call.script.loading]))[0])
        replies = yield Exchange(node, commands)
    checked(replies[0])
    if check_aof(replies[-1], confirm.local, confirm.replicas) is not None:
        raise not_confirmed()
