"""`sessions`, `show`, `unknowns`: what the ledger holds, read from the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ledger.approvals import pending_approvals
from ledger.cli.options import Settings, common
from ledger.cli.output import print_json
from ledger.cli.reach import opened, tenant_option, the_tenant
from ledger.cli.tables import SHORT_ID, pretty, print_exact, print_table
from ledger.cli.views import mutation_view, session_view, waiting_view
from ledger.errors import Refused
from ledger.history import SessionRow, list_sessions, read_session
from ledger.identity import session_hash
from ledger.ids import shard_of_session
from ledger.long_integers import read_json
from ledger.records import Approval, Session
from ledger.states import MutationStatus
from ledger.store import SyncStore
from ledger.timefmt import rfc3339

# What one shard is asked for at most when one session's waiting calls are looked up.
PAGE = 1000
_OPEN = (MutationStatus.OUTCOME_UNKNOWN, MutationStatus.EXECUTION_STARTED)
limit_option = click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Most rows."
)


@click.command()
@tenant_option
@limit_option
@common
def sessions(settings: Settings, tenant: str | None, limit: int) -> None:
    """List sessions, the last active first."""
    rows = _rows(settings, the_tenant(settings, tenant), limit, unknowns=False)
    listed = [
        {
            "session_id": row.session_id,
            "last_delivery_at": rfc3339(row.at),
            "live_runs": row.live_runs,
            "turns": row.turns,
        }
        for row in rows
    ]
    if settings.json:
        print_json({"sessions": listed})
        return
    print_table(("session", "last delivery", "live runs", "turns"), [tuple(row.values()) for row in listed])


@click.command()
@tenant_option
@limit_option
@common
def unknowns(settings: Settings, tenant: str | None, limit: int) -> None:
    """List unknown outcomes, the latest first: each waits for `reconcile`."""
    found = _rows(settings, the_tenant(settings, tenant), limit, unknowns=True)
    listed = [
        {"session_id": row.session_id, "since": rfc3339(row.at), **mutation_view(row.entry)}
        for row in found
        if row.entry
    ]
    if settings.json:
        print_json({"unknowns": listed})
        return
    shown = ("session_id", "logical_turn_id", "mutation_id", "tool", "since", "reason")
    rows = [[*(_short(name, row[name]) for name in shown), _last_readback(row)] for row in listed]
    print_table(("session", "turn", "mutation", "tool", "since", "reason", "last readback"), rows)


@click.command()
@click.argument("session")
@click.option("--arguments", is_flag=True, help="Also the arguments of unknown and waiting calls; no others are kept.")
@tenant_option
@common
def show(settings: Settings, session: str, arguments: bool, tenant: str | None) -> None:
    """Show a session: its turns, their mutations, and the calls that wait for a person."""
    whose = the_tenant(settings, tenant)
    with opened(settings) as store:
        shards = store.settings.redis.shards
        found = store.run(read_session(whose, session, shards))
        if found is None:
            raise Refused(f"tenant {whose} has no session {session}; see `mutation-ledger sessions`", code="not_found")
        waiting = _waiting(store, found) if found.live_runs else []
        kept = _arguments(store, found) if arguments else {}
    view = session_view(found)
    for turn in view["turns"]:
        for mutation in turn["mutations"]:
            named = turn["logical_turn_id"], mutation["mutation_id"]
            if named in kept:
                mutation["arguments"] = kept[named]
    view["waiting"] = [waiting_view(approval, arguments=arguments) for approval in waiting]
    if settings.json:
        print_exact(view)
    else:
        _print_session(view)


def _rows(settings: Settings, tenant: str, limit: int, *, unknowns: bool) -> list[SessionRow]:
    with opened(settings) as store:
        calls = [list_sessions(s, tenant, limit, unknowns=unknowns) for s in range(store.settings.redis.shards)]
        rows = [row for call in calls for row in store.run(call)]
    return sorted(rows, key=lambda row: row.at, reverse=True)[:limit]


def _waiting(store: SyncStore, session: Session) -> Sequence[Approval]:
    shard = shard_of_session(session_hash(session.tenant, session.session_id), store.settings.redis.shards)
    found: list[Approval] = []
    after = None
    while True:
        # Reading may write an expiry that wants a worker; the next sweep, within two seconds, finds that by itself.
        call = pending_approvals(shard, session.tenant, PAGE, session_id=session.session_id, after=after)
        page = store.run(call)
        found += page.approvals
        after = page.last
        if after is None:
            return found


def _arguments(store: SyncStore, session: Session) -> dict[tuple[str, str], Any]:
    """Arguments by turn and mutation id, of those whose outcome is open (C-83)."""
    entries = [entry for turn in session.turns for entry in turn.entries if entry.status in _OPEN]
    if not entries:
        return {}
    sid = session_hash(session.tenant, session.session_id)
    key = f"ml:{{{shard_of_session(sid, store.settings.redis.shards):02x}}}:args:{sid}"
    (texts,) = store.command([["HMGET", key, *(f"{entry.run_id}:{entry.index}" for entry in entries)]])
    return {
        (entry.logical_turn_id, entry.mutation_id): read_json(text)
        for entry, text in zip(entries, texts, strict=True)
        if text is not None
    }


def _print_session(view: dict[str, Any]) -> None:
    click.echo(f"session {view['session_id']}  tenant {view['tenant']}  live runs {view['live_runs']}")
    click.echo(f"created {view['created_at']}  last message {view['last_message_at']}  owner {view['owner'] or '-'}")
    for turn in view["turns"]:
        state = "finished" if turn["finished"] else "open"
        click.echo(f"\nturn {turn['logical_turn_id']}  agent {turn['agent']}  user {turn['user']}  {state}")
        columns = ("mutation_id", "tool", "status", "reason", "revision", "reconciled_by")
        rows = [[_short(name, mutation[name]) for name in columns] for mutation in turn["mutations"]]
        print_table(("mutation", "tool", "status", "reason", "revision", "reconciled by"), rows)
        _print_evidence(turn["mutations"])
        _print_arguments(turn["mutations"])
    if view["waiting"]:
        click.echo("\nwaiting for approval")
        columns = ("approval_id", "mutation_id", "tool", "level", "user", "expires_at")
        rows = [[_short(name, row[name]) for name in columns] for row in view["waiting"]]
        print_table(("approval", "mutation", "tool", "level", "user", "expires"), rows)
        _print_arguments(view["waiting"])


def _print_evidence(rows: Sequence[dict[str, Any]]) -> None:
    for row in rows:
        mutation = row["mutation_id"][:SHORT_ID]
        if row["late_report"]:
            click.echo(f"late report of {mutation}: {row['late_report']}, after it was reconciled; changes nothing")
        for told in row["readbacks"]:
            note = f": {told['note']}" if told["note"] else ""
            click.echo(f"readback of {mutation}: {told['answer']} at {told['at']} by {told['by']}{note}")


def _print_arguments(rows: Sequence[dict[str, Any]]) -> None:
    for row in rows:
        if "arguments" in row:
            click.echo(f"arguments of {row['mutation_id'][:SHORT_ID]}")
            click.echo("\n".join("  " + line for line in pretty(row["arguments"])))


def _last_readback(row: dict[str, Any]) -> str | None:
    if not row["readbacks"]:
        return None
    last = row["readbacks"][-1]
    return f"{last['answer']}: {last['note']}" if last["note"] else str(last["answer"])


def _short(name: str, value: Any) -> Any:
    """Mutation ids are cut: `reconcile` takes the beginning of one."""
    return value[:SHORT_ID] if name == "mutation_id" else value
