"""Reading outcomes from history after a gap: every session's ledger, then the streams go on from before that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ledger.consumer.confirming import confirm_read
from ledger.consumer.core import Core, last_ids
from ledger.consumer.cursors import Cursors
from ledger.consumer.keys import SESSIONS_PATTERN, sessions_key, shard_and_tenant
from ledger.consumer.outcome import Outcome, from_history
from ledger.consumer.plan import Topology, checked, discover, require_store
from ledger.consumer.steps import Address, Command, Emit, Exchange, Steps
from ledger.history import read_session
from ledger.records import Session
from ledger.store.call import ScriptCall
from ledger.store.view import LedgerView
from ledger.store.wire import is_missing_script

SESSIONS_AT_ONCE = 32
KEYS_AT_ONCE = 1000


def resync(core: Core, tenants: Sequence[str] | None) -> Steps[None]:
    """Emits the present outcome of every mutation of `tenants` (None: every tenant), then moves the cursors.

    The streams' ends are noted before history is read, so that nothing falls between; what changes meanwhile is
    emitted twice. Until the last outcome was processed the cursors stay where they were.
    """
    topology = yield from discover()
    store_id = require_store(topology)
    marks = yield from last_ids(topology, store_id)
    view = LedgerView(topology.shards)
    for shard in range(topology.shards):
        view.adopt(shard, store_id.encode())
    if tenants is None:
        indexes = yield from _find_indexes(topology)
    else:
        indexes = [(shard, tenant) for shard in range(topology.shards) for tenant in tenants]
    for shard, tenant in indexes:
        yield from _read_index(core, topology.node_of(shard), view, shard, tenant)
    yield from core.restart(Cursors(store_id, marks))


def _find_indexes(topology: Topology) -> Steps[list[tuple[int, str]]]:
    """Shards and tenants that have sessions: a scan of the key space, in small steps, only ever after a gap."""
    found: set[tuple[int, str]] = set()
    for group in topology.groups:
        cursor = b"0"
        while True:
            command: Command = ["SCAN", cursor, "MATCH", SESSIONS_PATTERN, "COUNT", KEYS_AT_ONCE, "TYPE", "zset"]
            (reply,) = yield Exchange(group.node, [command])
            cursor, keys = checked(reply)
            found.update(shard_and_tenant(key) for key in keys)
            if cursor == b"0":
                break
    return sorted(found)


def _read_index(core: Core, node: Address | None, view: LedgerView, shard: int, tenant: str) -> Steps[None]:
    """Emits the outcomes of a tenant's sessions in one shard, a few sessions at a time."""
    cursor = b"0"
    while True:
        command: Command = ["ZSCAN", sessions_key(shard, tenant), cursor, "COUNT", SESSIONS_AT_ONCE]
        (reply,) = yield Exchange(node, [command])
        cursor, flat = checked(reply)
        sids = flat[::2]
        # A small index is answered whole, whatever COUNT says.
        for at in range(0, len(sids), SESSIONS_AT_ONCE):
            outcomes = yield from _read_sessions(node, view, shard, tenant, sids[at : at + SESSIONS_AT_ONCE])
            if outcomes and core.options.confirm is not None:
                yield from confirm_read(core.options.confirm, node, shard, view.ids[shard].decode())
            if outcomes:
                yield Emit(outcomes, {})
        if cursor == b"0":
            return


def _read_sessions(
    node: Address | None, view: LedgerView, shard: int, tenant: str, sids: Sequence[bytes]
) -> Steps[list[Outcome]]:
    template: ScriptCall[Session | None] = read_session(tenant, "-", len(view.ids))
    calls = [replace(template, shard=shard, args=(sid, tenant, b"")) for sid in sids]
    commands = [view.arguments(call) for call in calls]
    replies = yield Exchange(node, commands)
    if any(is_missing_script(reply) for reply in replies):
        # Nothing is written by this script, so asking all of them again is harmless.
        checked((yield Exchange(node, [["SCRIPT", "LOAD", template.script.source]]))[0])
        replies = yield Exchange(node, commands)
    outcomes: list[Outcome] = []
    for call, reply in zip(calls, replies, strict=True):
        session = call.decode(checked(reply))
        if session is not None:
            outcomes += from_history(shard, session)
    return outcomes
